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

/** The top of a page: its title and its actions. */
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

/** The data of a resource. Before they arrive, a skeleton; after a failure, the error. */
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

/** A placeholder for data that are being loaded. */
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

/** Example code, for a list that is empty because no program uses the feature yet. */
export function Example({ children }: { readonly children: string }): JSX.Element {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a place that scrolls must be reached by keyboard
    <pre class="example" tabIndex={0} role="group" aria-label="Example">
      {children}
    </pre>
  );
}
