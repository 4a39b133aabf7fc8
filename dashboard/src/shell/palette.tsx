import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { can, send } from '../data/api.ts';
import { refresh, togglePause } from '../data/live.ts';
import { useResource } from '../data/resource.ts';
import type { List, Queue } from '../data/types.ts';
import { Modal } from '../parts/dialog.tsx';
import { attempt } from '../parts/toast.tsx';
import { go, lockUrl, parts, queueUrl } from '../router.ts';
import { visibleName } from '../text/visible.ts';
import { nextZone, toggleAbsolute } from '../text/zone.ts';
import { isHelpOpen, isPaletteOpen, KEYS, PLACES } from './keys.ts';
import { nextTheme } from './theme.ts';

interface Command {
  readonly title: string;
  readonly about: string;
  readonly run: () => void;
}

const SHOWN = 12;

/** Finds pages, queues and actions by a part of their names. A number leads to a job, an actor or a bulk action, any other text to a search. */
export default function Palette(): JSX.Element {
  const [typed, setTyped] = useState('');
  const [at, setAt] = useState(0);
  const found = commandsFor(typed.trim(), useQueues(typed.trim()));
  const chosen = Math.min(at, found.length - 1);
  const close = (): void => {
    isPaletteOpen.value = false;
  };
  const run = (command: Command | undefined): void => {
    if (command === undefined) return;
    close();
    command.run();
  };
  const move = (event: KeyboardEvent): void => {
    const by = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (by === 0) return;
    event.preventDefault();
    setAt((chosen + by + found.length) % found.length);
  };
  return (
    <Modal title="Commands" onClose={close}>
      <form
        method="dialog"
        class="palette"
        onSubmit={(event) => {
          event.preventDefault();
          run(found[chosen]);
        }}
      >
        <input
          role="combobox"
          aria-label="Command"
          aria-expanded="true"
          aria-controls="commands"
          aria-autocomplete="list"
          aria-activedescendant={found.length === 0 ? undefined : `command-${chosen}`}
          autoComplete="off"
          spellcheck={false}
          placeholder="A page, a queue, an id, or what to do"
          value={typed}
          onKeyDown={move}
          onInput={(event) => {
            setTyped(event.currentTarget.value);
            setAt(0);
          }}
        />
        <div role="listbox" id="commands" aria-label="Commands">
          {found.map((command, index) => (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the field above handles the keys
            <div
              key={`${command.about} ${command.title}`}
              id={`command-${index}`}
              role="option"
              tabIndex={-1}
              aria-selected={index === chosen}
              onClick={() => run(command)}
            >
              <span class="wrap grow">{command.title}</span>
              <span class="muted small">{command.about}</span>
            </div>
          ))}
        </div>
      </form>
    </Modal>
  );
}

/** Queues whose names contain the text. There may be thousands, so the server searches. */
function useQueues(typed: string): readonly Queue[] {
  const queues = useResource<List<Queue>>(
    `queues?${new URLSearchParams({ ...(typed === '' ? {} : { q: typed }), limit: '6' })}`,
    60_000,
  );
  return queues.data?.items ?? [];
}

function commandsFor(typed: string, queues: readonly Queue[]): readonly Command[] {
  const id = /^#?(\d{1,19})$/.exec(typed)?.[1];
  const all = [...ofHere(), ...ofQueues(queues), ...PAGES, ...ACTIONS].filter(({ title }) => fits(title, typed));
  return [...(id === undefined ? [] : ofId(id)), ...all.slice(0, SHOWN), ...(typed === '' ? [] : searches(typed))];
}

function ofId(id: string): Command[] {
  return [
    { title: `Job ${id}`, about: 'open', run: () => go(`jobs/${id}`) },
    { title: `Actor ${id}`, about: 'open', run: () => go(`actors/${id}`) },
  ];
}

function searches(typed: string): Command[] {
  return [
    { title: `Jobs with ${typed}`, about: 'search', run: () => go(`jobs?q=${encodeURIComponent(typed)}`) },
    { title: `Locks with ${typed}`, about: 'search', run: () => go(`locks?name=${encodeURIComponent(typed)}`) },
    { title: `Lock ${typed}`, about: 'open', run: () => go(lockUrl({ namespace: '', name: typed })) },
    { title: `History of ${typed}`, about: 'search', run: () => go(`history?q=${encodeURIComponent(typed)}`) },
  ];
}

function ofQueues(queues: readonly Queue[]): Command[] {
  return queues.map(({ name }) => ({ title: visibleName(name), about: 'queue', run: () => go(queueUrl(name)) }));
}

/** The actions for the page that is shown. */
function ofHere(): Command[] {
  const [place, name] = parts.value ?? [];
  if (place !== 'queues' || name === undefined || !can('queue:pause')) return [];
  const change = (verb: 'pause' | 'resume') => (): void => {
    void attempt(async () => (await send<{ done: string }>('POST', `${queueUrl(name)}/${verb}`)).done).then(refresh);
  };
  return [
    { title: `Pause ${visibleName(name)}`, about: 'this queue', run: change('pause') },
    { title: `Resume ${visibleName(name)}`, about: 'this queue', run: change('resume') },
  ];
}

const PAGES: readonly Command[] = Object.entries(PLACES).map(([key, to]) => ({
  title: KEYS.find(([keys]) => keys === `g ${key}`)?.[1] ?? to,
  about: `g ${key}`,
  run: () => go(to === '' ? './parts/' : to),
}));

const ACTIONS: readonly Command[] = [
  { title: 'Stop or start live updates', about: 'p', run: togglePause },
  { title: 'Change the colours', about: 't', run: nextTheme },
  { title: 'Times here, or in UTC', about: 'z', run: nextZone },
  { title: 'How long ago, or day and time', about: '.', run: toggleAbsolute },
  { title: 'Keys', about: '?', run: () => void (isHelpOpen.value = true) },
];

/** Whether the letters stand in the title in this order: `prc` finds "price checks". */
function fits(title: string, typed: string): boolean {
  let from = 0;
  for (const letter of typed.toLowerCase()) {
    from = title.toLowerCase().indexOf(letter, from) + 1;
    if (from === 0) return false;
  }
  return true;
}
