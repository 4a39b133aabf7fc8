import type { ComponentChildren, JSX } from 'preact';
import { count } from './format.ts';

/** A dash, if there is nothing to show. */
export function None(): JSX.Element {
  return <span class="muted none">–</span>;
}

/** The text, or a dash. */
export function Maybe({ of }: { readonly of: ComponentChildren }): JSX.Element {
  return of === null || of === undefined || of === '' ? <None /> : <>{of}</>;
}

interface CountProps {
  readonly of: number;
  readonly href?: string;
  /** Most counts stop at 10,000, which is shown as `10,000+`. This one does not. */
  readonly isExact?: boolean;
}

/** A count. Zero is drawn faintly. */
export function Count({ of, href, isExact = false }: CountProps): JSX.Element {
  if (of === 0) return <span class="muted none">0</span>;
  const text = isExact ? count(of, Infinity) : count(of);
  return href === undefined ? <>{text}</> : <a href={href}>{text}</a>;
}

/** The first line of a long error. The tooltip has all of it. */
export function FirstLine({ of }: { readonly of: string | null | undefined }): JSX.Element {
  if (of === null || of === undefined || of === '') return <None />;
  return (
    <div class="cut" title={of}>
      {of.split('\n')[0]}
    </div>
  );
}

/** The whole text of an error, as it was thrown. */
export function Trace({ text }: { readonly text: string }): JSX.Element {
  return (
    <div class="body">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a place that scrolls must be reached by keyboard */}
      <pre class="trace" tabIndex={0} role="group" aria-label="Error">
        {text}
      </pre>
    </div>
  );
}
