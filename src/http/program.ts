import type { Actors } from '../actor/index.ts';
import { InvalidInput } from '../base/errors.ts';
import { type Check, custom, list } from '../base/options/options.ts';
import { refusal } from '../base/options/refusal.ts';
import { isObject } from '../base/options/shape.ts';
import type { Capture } from '../capture/index.ts';
import type { Files } from '../files/index.ts';
import type { Queue } from '../queue/index.ts';

/**
 * The parts of the user's program that a server was given. The database has the rows. Only the program has schemas, declarations,
 * bodies of turns, and bytes.
 */
export interface Program {
  readonly files: readonly Files[];
  readonly captures: readonly Capture[];
  readonly actors: readonly Actors[];
  readonly queues: readonly Queue[];
}

/** The checks of these options. By shape, since a config file may load another copy of this package. */
export const programShape: { readonly [N in keyof Program]: Check<Program[N]> } = {
  files: oneOrMany('createFiles', isFiles, ({ namespace }) => `files of the namespace "${namespace}"`),
  captures: list(
    custom('what createCapture() made', (value, place) => {
      if (isCapture(value)) return value;
      throw refusal(place, value, 'what createCapture() made');
    }),
    { default: [] },
  ),
  actors: oneOrMany('createActors', isActors),
  queues: list(
    custom('what createQueue() made', (value, place) => {
      if (isQueue(value)) return value;
      throw refusal(place, value, 'what createQueue() made');
    }),
    { default: [] },
  ),
};

function oneOrMany<T>(
  maker: string,
  isOurs: (value: unknown) => value is T,
  nameOf?: (one: T) => string,
): Check<readonly T[]> {
  const words = `the result of ${maker}(), or a list of such results`;
  return custom<readonly T[]>(
    words,
    (value, place) => {
      const all: unknown[] = Array.isArray(value) ? value : [value];
      const ours = all.filter(isOurs);
      if (ours.length < all.length) throw refusal(place, value, words);
      const names = nameOf === undefined ? [] : ours.map(nameOf);
      const twice = names.find((name, index) => names.indexOf(name) !== index);
      if (twice === undefined) return ours;
      throw new InvalidInput(`${twice} are given twice`, { field: place.field });
    },
    { default: [] },
  );
}

function has(value: unknown, methods: readonly string[]): value is Record<string, unknown> {
  return isObject(value) && methods.every((method) => typeof value[method] === 'function');
}

function isFiles(value: unknown): value is Files {
  const methods = ['read', 'write', 'restore', 'remove', 'sweep', 'reconcile'];
  return has(value, methods) && typeof value['namespace'] === 'string';
}

function isCapture(value: unknown): value is Capture {
  return has(value, ['plan', 'apply']) && typeof value['entity'] === 'string';
}

function isActors(value: unknown): value is Actors {
  return has(value, ['create', 'work', 'run']) && Array.isArray(value['typeNames']);
}

function isQueue(value: unknown): value is Queue {
  return has(value, ['enqueue', 'check', 'work']) && typeof value['name'] === 'string';
}
