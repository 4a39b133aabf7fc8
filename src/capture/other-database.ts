import { type Check, custom } from '../base/options/options.ts';
import { refusal } from '../base/options/refusal.ts';
import { isObject } from '../base/options/shape.ts';
import type { PostgresEngine } from '../engine/postgres/index.ts';

/** An option that is an engine, told by its shape: the program may have loaded another copy of this package. */
export const otherDatabase: Check<PostgresEngine> = custom('an engine, made by postgres()', (value, place) => {
  if (!isEngine(value)) throw refusal(place, value, 'an engine, made by postgres()');
  return value;
});

function isEngine(value: unknown): value is PostgresEngine {
  return isObject(value) && value['kind'] === 'postgres' && 'transaction' in value;
}
