import { type Check, custom, list, object, oneOf, text } from '../base/options/options.ts';
import { type OptionPath, refusal } from '../base/options/refusal.ts';

const PLACES = ['job', 'actor', 'lock', 'queue'] as const;
const NAMES = ['id', 'queue', 'kind', 'key', 'trace', 'from', 'to', 'type', 'state', 'namespace', 'name'];

/** A link from the dashboard to another program: to logs, traces, or the customers of an application. */
export interface LinkOptions {
  /** Such as `Logs`. At most 40 characters. */
  readonly title: string;
  /** The kind of pages that show it. */
  readonly of: (typeof PLACES)[number];
  /**
   * An http or https address, with values in braces. Of a job: `{id}`, `{queue}`, `{kind}`, `{key}`, `{trace}`, and `{from}` and
   * `{to}`, its first and last moment. Of an actor: `{id}`, `{type}`, `{state}`, `{key}`, `{from}`, `{to}`. Of a lock:
   * `{namespace}` and `{name}`. Of a queue: `{name}`. If one of the values is unknown, the link is not shown.
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

/** @throws InvalidInput  a text that is no address, or that names a value that does not exist */
export const links: Check<readonly LinkOptions[]> = list(
  object({ title: text({ min: 1, max: 40 }), of: oneOf(PLACES), url }),
  { default: [] },
);
