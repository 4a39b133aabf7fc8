import type { JSX } from 'preact';
import { connection, isPaused, togglePause } from '../data/live.ts';
import { Icon } from '../parts/icon.tsx';
import { go } from '../router.ts';
import { Times } from '../text/times.tsx';
import { isHelpOpen, isPaletteOpen } from './keys.ts';
import { nextTheme, theme } from './theme.ts';

const ICONS = { system: 'system', light: 'sun', dark: 'moon' } as const;

const STATES = {
  connecting: ['idle', 'Connecting'],
  live: ['good', 'Live'],
  polling: ['good', 'Every 5 s'],
  lost: ['bad', 'No connection'],
} as const;

export function Top(): JSX.Element {
  const [tone, state] = isPaused.value ? (['warn', 'Paused'] as const) : STATES[connection.value];
  return (
    <header class="top">
      <form role="search" onSubmit={search}>
        <Icon name="search" size={15} />
        <input
          id="search"
          name="q"
          type="search"
          aria-label="Search for jobs"
          placeholder="Find a job: an id, words, key:ada, status:error"
          autoComplete="off"
        />
        <kbd aria-hidden="true">/</kbd>
      </form>
      <div class="top-end">
        <button
          type="button"
          class="live"
          data-live={!isPaused.value && connection.value === 'live'}
          aria-pressed={isPaused.value}
          title="Stop and start live updates (p)"
          onClick={togglePause}
        >
          <span class={`dot tone-${tone}`} />
          {state}
          <Icon name={isPaused.value ? 'play' : 'pause'} size={13} />
        </button>
        <button
          type="button"
          class="plain"
          aria-label="Commands"
          title="Commands (Ctrl+K)"
          onClick={() => {
            isPaletteOpen.value = true;
          }}
        >
          <Icon name="bolt" />
        </button>
        <Times />
        <button
          type="button"
          class="plain"
          aria-label={`Colours: ${theme.value}. Change`}
          title={`Colours: ${theme.value} (t)`}
          onClick={nextTheme}
        >
          <Icon name={ICONS[theme.value]} />
        </button>
        <button
          type="button"
          class="plain"
          aria-label="Keys"
          title="Keys (?)"
          onClick={() => {
            isHelpOpen.value = true;
          }}
        >
          <Icon name="help" />
        </button>
      </div>
    </header>
  );
}

function search(event: Event): void {
  event.preventDefault();
  const text = new FormData(event.currentTarget as HTMLFormElement).get('q');
  const wanted = typeof text === 'string' ? text.trim() : '';
  go(/^#?\d+$/.test(wanted) ? `jobs/${wanted.replace('#', '')}` : `jobs?q=${encodeURIComponent(wanted)}`);
}
