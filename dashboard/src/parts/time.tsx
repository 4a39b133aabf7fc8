import type { JSX } from 'preact';
import { ago, clock, exact } from '../format.ts';
import { tick } from '../live.ts';
import { None } from './words.tsx';

/** How long ago; the moment itself, to the millisecond, for whoever points at it. */
export function Time({ at }: { readonly at: string | null | undefined }): JSX.Element {
  void tick.value;
  if (at === null || at === undefined) return <None />;
  return (
    <time dateTime={at} title={exact(at)}>
      {ago(at)}
    </time>
  );
}

/** The moment, and how long ago that is: where there is room for both. */
export function Moment({ at }: { readonly at: string }): JSX.Element {
  void tick.value;
  const ms = String(new Date(at).getMilliseconds()).padStart(3, '0');
  return (
    <time dateTime={at} title={exact(at)}>
      {clock(at)}
      <span class="muted">
        .{ms}, {ago(at)}
      </span>
    </time>
  );
}
