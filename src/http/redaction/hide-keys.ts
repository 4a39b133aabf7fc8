import { DEEPEST } from './depth.ts';
import type { PropertyBudget } from './property-budget.ts';

export const REDACTED = '[redacted]';
/** Items per property: a loop over plain items is this much faster than a test of a property's name. */
const ITEMS_PER_PROPERTY = 16;

/**
 * The value, with everything under these keys replaced, at any depth and in any case. A value with nothing to hide is returned
 * itself: most payloads are such, and a copy takes longer than the search.
 * @param keys  in lower case
 * @throws TooLarge
 */
export function hideKeys(value: unknown, keys: ReadonlySet<string>, budget: PropertyBudget, depth = 0): unknown {
  if (!isObject(value)) return value;
  if (depth > DEEPEST) return REDACTED;
  return Array.isArray(value) ? inList(value, keys, budget, depth) : inObject(value, keys, budget, depth);
}

function inList(list: readonly unknown[], keys: ReadonlySet<string>, budget: PropertyBudget, depth: number): unknown {
  budget.spend(1 + list.length / ITEMS_PER_PROPERTY);
  let copy: unknown[] | undefined;
  for (let index = 0; index < list.length; index += 1) {
    const item = list[index];
    if (!isObject(item)) continue;
    const shown = hideKeys(item, keys, budget, depth + 1);
    if (shown === item) continue;
    copy ??= list.slice();
    copy[index] = shown;
  }
  return copy ?? list;
}

function inObject(object: object, keys: ReadonlySet<string>, budget: PropertyBudget, depth: number): unknown {
  const names = Object.keys(object);
  budget.spend(1 + names.length);
  let copy: object | undefined;
  for (const name of names) {
    const inner: unknown = Reflect.get(object, name);
    const shown = keys.has(name.toLowerCase()) ? REDACTED : hideKeys(inner, keys, budget, depth + 1);
    if (shown === inner) continue;
    copy ??= { ...object };
    Reflect.set(copy, name, shown);
  }
  return copy ?? object;
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
