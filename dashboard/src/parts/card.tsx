import type { ComponentChildren, JSX } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import type { Resource } from '../data/resource.ts';
import { arrive } from '../router.ts';
import { Name } from '../text/name.tsx';
import { useTitle } from '../text/title.ts';
import { Icon } from './icon.tsx';

interface CardProps {
  readonly title: string;
  readonly actions?: ComponentChildren;
  readonly children: ComponentChildren;
  readonly class?: string;
}

export function Card({ title, actions, children, class: more = '' }: CardProps): JSX.Element {
  return (
    <section class={`card ${more}`} aria-label={title}>
      <header>
        <h2>{title}</h2>
        {actions}
      </header>
      {children}
    </section>
  );
}

/** The top of a page: what it is, and what can be done with it. */
export function Head({
  title,
  about,
  actions,
}: {
  title: string;
  about?: ComponentChildren;
  actions?: ComponentChildren;
}): JSX.Element {
  useTitle(title);
  const heading = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => {
    if (arrive()) heading.current?.focus();
  }, []);
  return (
    <div class="head">
      <div>
        <h1 tabIndex={-1} ref={heading}>
          <Name of={title} />
        </h1>
        {about !== undefined && <div class="muted">{about}</div>}
      </div>
      {actions !== undefined && <div class="actions">{actions}</div>}
    </div>
  );
}

/** What is there, or why it is not. */
export function Loaded<T>({
  of,
  children,
}: {
  readonly of: Resource<T>;
  readonly children: (data: T) => ComponentChildren;
}): JSX.Element {
  return (
    <>
      {of.error !== undefined && <Trouble error={of.error} retry={of.reload} />}
      {of.data !== undefined ? children(of.data) : of.error === undefined && <Skeleton />}
    </>
  );
}

/** Where something is about to be. */
export function Skeleton(): JSX.Element {
  return (
    <div class="skeleton">
      <span class="hidden">Loading…</span>
      <i />
      <i />
      <i />
    </div>
  );
}

export function Trouble({ error, retry }: { readonly error: Error; readonly retry?: () => void }): JSX.Element {
  return (
    <p class="error" role="alert">
      <Icon name="warn" />
      <span class="wrap">{error.message}</span>
      {retry !== undefined && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </p>
  );
}

export function Empty({
  title,
  children,
}: {
  readonly title: string;
  readonly children?: ComponentChildren;
}): JSX.Element {
  return (
    <div class="empty">
      <strong>{title}</strong>
      {children}
    </div>
  );
}

/** What to write, where nothing is there yet because nothing was written. */
export function Example({ children }: { readonly children: string }): JSX.Element {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a place that scrolls must be reached by keyboard
    <pre class="example" tabIndex={0} role="group" aria-label="Example">
      {children}
    </pre>
  );
}
