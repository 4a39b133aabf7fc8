import { type Check, custom, list, object, oneOf, text } from '../base/options/options.ts';
import { type OptionPath, refusal } from '../base/options/refusal.ts';

const PLACES = ['job', 'actor', 'lock', 'queue'] as const;
const NAMES = ['id', 'queue', 'kind', 'key', 'trace', 'from', 'to', 'type', 'state', 'namespace', 'name'];

/** A way out of the dashboard: to where logs, traces, or the customers of an application are. */
export interface LinkOptions {
  /** Such as `Logs`. At most 40 characters. */
  readonly title: string;
  /** On whose pages it stands. */
  readonly of: (typeof PLACES)[number];
  /**
   * http or https, with what is known in braces: of a job `{id}`, `{queue}`, `{kind}`, `{key}`, `{trace}`, and `{from}` and `{to}`, its
   * first and last moment; of an actor `{id}`, `{type}`, `{state}`, `{key}`, `{from}`, `{to}`; of a lock `{namespace}` and `{name}`; of a
   * queue `{name}`. Where one of them is not known, the link is not shown.
   */
  readonly url: string;
}

const url: Check<string> = custom('an address', (value: unknown, place: OptionPath) => {
  if (typeof value !== 'string') throw refusal(place, value, 'an address');
  const strange = [...value.matchAll(/\{(\w*)\}/g)].find(([, name = '']) => !NAMES.includes(name))?.[0];
  if (strange !== undefined)
    throw refusal(place, value, `an address without ${strange}; known are {${NAMES.join('}, {')}}`);
  const example = value.replaceAll(/\{\w+\}/g, 'x');
  // A click must not run a script.
  if (URL.canParse(example) && /^https?:$/.test(new URL(example).protocol)) return value;
  throw refusal(place, value, 'an address that begins with https:// or http://');
});

/** @throws InvalidInput  an address that is none, or that asks for a value that does not exist */
export const links: Check<readonly LinkOptions[]> = list(
  object({ title: text({ min: 1, max: 40 }), of: oneOf(PLACES), url }),
  { default: [] },
);
