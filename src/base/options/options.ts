import { type OptionValues, readShape, type Shape } from './shape.ts';

export * from './kinds.ts';
export type { Check, OptionValues, Shape } from './shape.ts';
export { suggest } from './suggest.ts';

/**
 * Checks the options of one call against their table, once, at the border; the code behind it then holds a complete and
 * frozen object. Nested objects and lists are frozen too; functions, signals and schemas are passed through as they are.
 *
 * An option that is undefined counts as left out. Keys that the table does not have are refused.
 * ```ts
 * const options = checkOptions('createQueue', given, {
 *   shards: integer({ min: 1, max: 1024, default: 1 }),
 *   lease: duration({ min: '1s', default: '30s' }),
 *   retry: object({ attempts: integer({ min: 1, default: 5 }), backoff: backoffShape() }),
 *   signal,
 * });
 * ```
 * @param what  the call, as its user writes it: `createQueue`
 * @throws InvalidInput  says which option, with which value, and what to give; `field` is its path: `retry.attempts`
 */
export function checkOptions<S extends Shape>(what: string, value: unknown, shape: S): OptionValues<S> {
  return readShape(value ?? {}, shape, { field: '', what });
}
