import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { me, send } from '../data/api.ts';
import { live } from '../data/live.ts';
import { Icon, type IconName } from '../parts/icon.tsx';
import { attempt } from '../parts/toast.tsx';
import { path } from '../router.ts';

type Entry = readonly [href: string, icon: IconName, title: string];

const GROUPS: readonly (readonly [title: string, entries: readonly Entry[]])[] = [
  ['', [['', 'overview', 'Overview']]],
  [
    'Work',
    [
      ['queues', 'queue', 'Queues'],
      ['jobs', 'job', 'Jobs'],
      ['errors', 'cross', 'Errors'],
      ['schedules', 'clock', 'Schedules'],
      ['topics', 'queue', 'Topics'],
      ['workers', 'worker', 'Workers'],
    ],
  ],
  [
    'Coordination',
    [
      ['locks', 'lock', 'Locks'],
      ['actors', 'actor', 'Actors'],
    ],
  ],
  [
    'Data',
    [
      ['captures', 'capture', 'Capture'],
      ['files', 'file', 'Files'],
    ],
  ],
  [
    'Operation',
    [
      ['history', 'history', 'History'],
      ['pages', 'bell', 'Pages'],
      ['admin', 'admin', 'Admin'],
    ],
  ],
];

/** The groups without the parts that this server does not have. */
function groups(parts: Readonly<Record<string, boolean>>): typeof GROUPS {
  return GROUPS.map(([title, entries]) => [title, entries.filter(([href]) => parts[href] !== false)] as const).filter(
    ([, entries]) => entries.length > 0,
  );
}

const isOpen = signal(false);

export function Side(): JSX.Element {
  const visitor = me.value;
  return (
    <nav class="side" aria-label="Main" data-open={isOpen.value}>
      <div class="side-top">
        <a class="brand" href="./">
          <img src="icon.svg" alt="" width="30" height="30" />
          <span>
            Pawl
            {visitor?.title && (
              <>
                <br />
                <small>{visitor.title}</small>
              </>
            )}
          </span>
        </a>
        <button
          type="button"
          class="menu-button"
          aria-expanded={isOpen.value}
          onClick={() => {
            isOpen.value = !isOpen.value;
          }}
        >
          <Icon name="menu" />
          Menu
        </button>
      </div>
      {groups(visitor?.parts ?? {}).map(([title, entries]) => (
        <div key={title}>
          {title !== '' && <h2>{title}</h2>}
          <ul>
            {entries.map((entry) => (
              <Link key={entry[0]} entry={entry} />
            ))}
          </ul>
        </div>
      ))}
      <div class="side-end">
        <span class="wrap">
          {visitor?.name}, {visitor?.role ?? 'own permissions'}
        </span>
        {visitor?.by === 'session' && (
          <button type="button" onClick={() => void logOut()}>
            <Icon name="out" />
            Log out
          </button>
        )}
        <span>Pawl {visitor?.version}</span>
      </div>
    </nav>
  );
}

function Link({ entry: [href, icon, title] }: { readonly entry: Entry }): JSX.Element {
  const isCurrent = href === '' ? path.value === '' : path.value === href || path.value.startsWith(`${href}/`);
  const badge = badgeOf(href);
  return (
    <li>
      <a
        href={href === '' ? './' : href}
        aria-current={isCurrent ? 'page' : undefined}
        onClick={() => {
          isOpen.value = false;
        }}
      >
        <Icon name={icon} />
        {title}
        {badge !== undefined && (
          <span class={`count tone-${badge.tone}`}>
            {badge.n}
            <span class="hidden"> {badge.what}</span>
          </span>
        )}
      </a>
    </li>
  );
}

function badgeOf(href: string): { n: number; tone: string; what: string } | undefined {
  const now = live.value;
  if (now === undefined) return undefined;
  if (href === 'pages' && now.pages.open > 0) return { n: now.pages.open, tone: 'bad', what: 'open' };
  if (href === 'locks' && now.locks.waiting > 0) return { n: now.locks.waiting, tone: 'wait', what: 'waiting' };
  if (href === 'queues' && now.totals.paused > 0) return { n: now.totals.paused, tone: 'warn', what: 'paused' };
  if (href === 'errors' && now.totals.error > 0) return { n: now.totals.error, tone: 'bad', what: 'jobs in error' };
  return undefined;
}

async function logOut(): Promise<void> {
  const isOut = await attempt(async () => {
    await send('POST', 'logout');
    return undefined;
  });
  if (isOut) me.value = null;
}
