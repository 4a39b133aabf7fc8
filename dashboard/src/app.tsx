import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { loadMe, me } from './data/api.ts';
import { startLive } from './data/live.ts';
import { Trouble } from './parts/card.tsx';
import { Dialogs } from './parts/dialog.tsx';
import { Icon } from './parts/icon.tsx';
import { lazy } from './parts/lazy.tsx';
import { Toasts } from './parts/toast.tsx';
import { parts, path } from './router.ts';
import { pageOf } from './screens.tsx';
import { Boundary } from './shell/boundary.tsx';
import { Help } from './shell/help.tsx';
import { isPaletteOpen } from './shell/keys.ts';
import { Login } from './shell/login.tsx';
import { Side } from './shell/side.tsx';
import { Top } from './shell/top.tsx';

const Palette = lazy(async () => (await import('./shell/palette.tsx')).default);

let isStarted = false;

export function App(): JSX.Element {
  const [error, setError] = useState<Error | undefined>();
  const load = (): void => {
    setError(undefined);
    loadMe().catch(setError);
  };
  useEffect(load, []);
  const visitor = me.value;
  useEffect(() => {
    if (visitor === null || visitor === undefined || isStarted) return;
    isStarted = true;
    startLive();
  }, [visitor]);
  if (error !== undefined) return <Trouble error={error} retry={load} />;
  if (visitor === null) return <Login />;
  if (visitor === undefined) return <p class="empty">Loading…</p>;
  return (
    <>
      <a class="skip" href="#content" onClick={skip}>
        Skip to the content
      </a>
      <div class="shell">
        <Side />
        <div class="main">
          {visitor.readOnly && (
            <p class="banner">
              <Icon name="lock" size={14} /> Read-only mode: nothing can be changed here.
            </p>
          )}
          <Top />
          <main id="content" class="content" key={path.value}>
            <Boundary>{pageOf(parts.value)}</Boundary>
          </main>
        </div>
      </div>
      <Dialogs />
      <Help />
      {isPaletteOpen.value && <Palette />}
      <Toasts />
    </>
  );
}

/** The browser would resolve "#content" by the page's `<base>`, which is another page. */
function skip(event: Event): void {
  event.preventDefault();
  document.querySelector<HTMLElement>('h1')?.focus();
}
