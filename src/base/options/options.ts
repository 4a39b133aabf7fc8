import { type OptionValues, readShape, type Shape } from './shape.ts';

export * from './kinds.ts';
export type { Check, OptionValues, Shape } from './shape.ts';
export { suggest } from './suggest.ts';

/**
 * Checks the options of one call against their table, once, in the public function. The code behind it then has a complete and
 * frozen object. Nested objects and lists are frozen too; functions, signals and schemas are passed through unchanged.
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
 * @throws InvalidInput  names the option, the value, and the accepted values; `field` is its path: `retry.attempts`
 */
export function checkOptions<S extends Shape>(what: string, value: unknown, shape: S): OptionValues<S> {
  return readShape(value ?? {}, shape, { field: '', what });
}
