import { InvalidInput } from '../base/errors.ts';
import { suggest } from '../base/options/options.ts';
import type { Handler } from './work/attempt.ts';

/**
 * The handlers that a program gives to `work()`: one for each kind of the queue, and none for others.
 * @throws InvalidInput
 */
export function readHandlers(
  queue: string,
  kinds: readonly string[],
  handlers: unknown,
): readonly (readonly [kind: string, handler: Handler])[] {
  if (typeof handlers !== 'object' || handlers === null) {
    throw new InvalidInput(`work() takes a handler for each kind: { ${kinds[0]}: (unit) => … }`, {
      field: 'handlers',
    });
  }
  const given = Object.entries(handlers);
  for (const [name, handler] of given) {
    if (!kinds.includes(name)) {
      const near = suggest(name, kinds);
      const advice = near === undefined ? `the kinds are ${kinds.join(', ')}` : `did you mean "${near}"?`;
      throw new InvalidInput(`queue "${queue}" has no kind "${name}"; ${advice}`, { field: `handlers.${name}` });
    }
    if (typeof handler !== 'function') {
      throw new InvalidInput(`the handler of kind "${name}" must be a function`, { field: `handlers.${name}` });
    }
  }
  const missing = kinds.find((kind) => !Object.hasOwn(handlers, kind));
  if (missing !== undefined) {
    throw new InvalidInput(
      `queue "${queue}" has no handler for kind "${missing}"; a worker takes every kind, since the jobs of a key run in order`,
      { field: `handlers.${missing}` },
    );
  }
  return given;
}
