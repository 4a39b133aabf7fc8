import { computed } from '@preact/signals';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { kept } from '../data/kept.ts';
import { tick } from '../data/live.ts';
import { useResource } from '../data/resource.ts';
import { Card, Loaded } from '../parts/card.tsx';
import { Icon } from '../parts/icon.tsx';
import { Menu } from '../parts/menu.tsx';

interface Item {
  readonly level: string;
  readonly text: string;
  readonly advice?: string;
  readonly look: string;
}

const HOUR_MS = 3_600_000;
const FOR = [
  ['For an hour', HOUR_MS],
  ['For 8 hours', 8 * HOUR_MS],
  ['For 7 days', 7 * 24 * HOUR_MS],
] as const;

/** Until when each item is snoozed. Only this browser keeps it, because an item that one person knows is news to another one. */
const snoozed = kept<Readonly<Record<string, number>>>('pawl-snoozed', isTimes, {});
const still = computed(() => {
  void tick.value;
  return Object.fromEntries(Object.entries(snoozed.value).filter(([, until]) => until > Date.now()));
});

/** The items that need the attention of a person now. A person can hide a known item for a while. */
export function Attention(): JSX.Element {
  const attention = useResource<{ readonly items: readonly Item[] }>('attention', 4000);
  const isAside = (item: Item): boolean => still.value[nameOf(item)] !== undefined;
  const aside = attention.data?.items.filter(isAside).length ?? 0;
  return (
    <Card
      title="Needs attention"
      actions={
        aside > 0 && (
          <button
            type="button"
            class="link small"
            onClick={() => {
              snoozed.value = {};
            }}
          >
            {aside} snoozed: show
          </button>
        )
      }
    >
      <Loaded of={attention}>{({ items }) => <Items of={items.filter((item) => !isAside(item))} />}</Loaded>
    </Card>
  );
}

/** The number of items that are shown at first. The worst are first. More would push the rest of the page down too far. */
const FIRST = 6;

function Items({ of }: { readonly of: readonly Item[] }): JSX.Element {
  const [isWhole, setWhole] = useState(false);
  if (of.length === 0)
    return (
      <p class="calm">
        <Icon name="check" size={20} /> Nothing needs you now.
      </p>
    );
  const shown = isWhole ? of : of.slice(0, FIRST);
  return (
    <>
      <ul class="attention">
        {shown.map((item) => (
          <li key={item.text} class={`tone-${item.level === 'error' ? 'bad' : 'warn'}`}>
            <Icon name={item.level === 'error' ? 'cross' : 'warn'} />
            <span class="wrap grow">
              <span class="hidden">{item.level}: </span>
              {item.text}
              {item.advice !== undefined && <span class="muted">: {item.advice}</span>}
            </span>
            <a href={item.look} aria-label={`Look: ${item.text}`}>
              Look
            </a>
            <Menu title="Snooze" icon="snooze" label={`Snooze: ${item.text}`}>
              {FOR.map(([title, ms]) => (
                <button
                  key={title}
                  type="button"
                  onClick={() => {
                    snoozed.value = { ...still.value, [nameOf(item)]: Date.now() + ms };
                  }}
                >
                  {title}
                </button>
              ))}
            </Menu>
          </li>
        ))}
      </ul>
      {of.length > FIRST && (
        <div class="bulk-bar">
          <button type="button" aria-expanded={isWhole} onClick={() => setWhole(!isWhole)}>
            {isWhole ? `The first ${FIRST}` : `All ${of.length}`}
          </button>
        </div>
      )}
    </>
  );
}

/** The same name for the same trouble, however many jobs it has now. If its level rises, it has another name. */
function nameOf({ level, text, look }: Item): string {
  return `${level} ${look} ${text.replace(/\d+/g, '#')}`;
}

function isTimes(value: unknown): value is Readonly<Record<string, number>> {
  return typeof value === 'object' && value !== null && Object.values(value).every((one) => typeof one === 'number');
}
