import { signal } from '@preact/signals';
import { togglePause } from '../data/live.ts';
import { go } from '../router.ts';
import { nextZone, toggleAbsolute } from '../text/zone.ts';
import { nextTheme } from './theme.ts';

/** The keys and their actions, as the help shows them. */
export const KEYS: readonly (readonly [keys: string, does: string])[] = [
  ['/', 'search for jobs'],
  ['Ctrl+K', 'every page, queue and action by its name'],
  ['g o', 'overview'],
  ['g q', 'queues'],
  ['g j', 'jobs'],
  ['g e', 'errors'],
  ['g l', 'locks'],
  ['g a', 'actors'],
  ['g c', 'capture'],
  ['g f', 'files'],
  ['g h', 'history'],
  ['g p', 'pages'],
  ['g s', 'schedules'],
  ['g w', 'workers'],
  ['g d', 'admin'],
  ['j k', 'the next row of a list, the one before'],
  ['Enter', 'open it'],
  ['x', 'select it'],
  ['p', 'stop and start live updates'],
  ['z', 'times here or in UTC'],
  ['.', 'how long ago, or day and time'],
  ['t', 'system, light or dark colours'],
  ['?', 'this help'],
];

/** The pages to which `g` and a letter lead. */
export const PLACES: Readonly<Record<string, string>> = {
  o: '',
  q: 'queues',
  j: 'jobs',
  e: 'errors',
  l: 'locks',
  a: 'actors',
  c: 'captures',
  f: 'files',
  h: 'history',
  p: 'pages',
  w: 'workers',
  s: 'schedules',
  d: 'admin',
};

export const isPaletteOpen = signal(false);
export const isHelpOpen = signal(false);
let before = '';
let beforeAt = 0;

/** Single keys. They have no effect while the user writes in a field. */
export function startKeys(): void {
  document.addEventListener('keydown', (event) => {
    const { target } = event;
    if ((event.ctrlKey || event.metaKey) && event.key === 'k' && document.querySelector('dialog[open]') === null) {
      event.preventDefault();
      isPaletteOpen.value = true;
      return;
    }
    const isWriting =
      target instanceof HTMLElement &&
      (target.matches('input:not([type=checkbox]), textarea, select') || target.isContentEditable);
    if (isWriting || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]') !== null)
      return;
    const place = before === 'g' && Date.now() - beforeAt < 1500 ? PLACES[event.key] : undefined;
    before = event.key;
    beforeAt = Date.now();
    if (place !== undefined) {
      before = '';
      go(place);
    } else if (event.key === '/') {
      event.preventDefault();
      document.querySelector<HTMLInputElement>('#search')?.focus();
    } else if (event.key === '?') isHelpOpen.value = true;
    else if (event.key === 'j') moveInList(1);
    else if (event.key === 'k') moveInList(-1);
    else if (event.key === 'x') chooseRow();
    else if (event.key === 'p') togglePause();
    else if (event.key === 't') nextTheme();
    else if (event.key === 'z') nextZone();
    else if (event.key === '.') toggleAbsolute();
  });
}

/** Moves to the next row of the list that has the focus, or of the first list of the page. The row's link takes the focus, so Enter opens it. */
function moveInList(by: 1 | -1): void {
  const here = rowOf(document.activeElement);
  const list = here?.parentElement ?? document.querySelector('main .table tbody');
  const rows = [...(list?.querySelectorAll<HTMLElement>(':scope > tr') ?? [])];
  const next = rows[here === null ? 0 : rows.indexOf(here) + by];
  // The box to select the row is in front of its link.
  const link = next?.querySelector<HTMLElement>('td:not(.pick) :is(a, button)');
  (link ?? next?.querySelector('input'))?.focus();
  next?.scrollIntoView({ block: 'nearest' });
}

function chooseRow(): void {
  rowOf(document.activeElement)?.querySelector<HTMLInputElement>('.pick input')?.click();
}

function rowOf(element: Element | null): HTMLElement | null {
  return element?.closest<HTMLElement>('main .table tbody > tr') ?? null;
}
