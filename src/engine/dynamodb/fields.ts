/** Turns fields of rows into attributes, and changes into requests. */
import type { Change, Fields } from './change.ts';
import { type Attribute, type Item, num, type RequestTexts, text } from './client.ts';
import { Expression } from './expression.ts';
import { TTL } from './table.ts';

/** A number as text that sorts in the order of numbers. */
export function digits(value: number, many: number): string {
  return String(Math.max(0, Math.floor(value))).padStart(many, '0');
}

const KEYS = new Set(['pk', 'sk']);

/** The texts and numbers of a row, without its key. */
export function fieldsOf(item: Item | undefined): Fields {
  const fields: Record<string, string | number> = {};
  for (const [name, value] of Object.entries(item ?? {})) {
    if (KEYS.has(name)) continue;
    if ('S' in value) fields[name] = value.S;
    else if ('N' in value) fields[name] = Number(value.N);
  }
  return fields;
}

/** The request of a change. */
export function written({ isThere, expect, set, add = {} }: Change): RequestTexts {
  const request = new Expression();
  if (isThere === true) request.when('attribute_exists(pk)');
  for (const [name, value] of Object.entries(expect)) {
    if (value === null) request.whenAbsent(name);
    else request.whenIs(name, attribute(value));
  }
  for (const [name, value] of Object.entries(set)) {
    if (value === null) request.remove(name);
    else request.set(name, attribute(value));
  }
  for (const [name, by] of Object.entries(add)) {
    const known = `if_not_exists(${request.name(name)}, ${request.value(num(0))})`;
    request.setTo(name, `${known} + ${request.value(num(by))}`);
  }
  return request.write();
}

/** Creates a row that must not exist. @param ttlAt  the time after which it may be removed, in milliseconds since 1970 */
export function creation(fields: Readonly<Record<string, string | number | undefined>>, ttlAt?: number): RequestTexts {
  const request = new Expression().whenAbsent('pk');
  for (const [name, value] of Object.entries(fields)) if (value !== undefined) request.set(name, attribute(value));
  if (ttlAt !== undefined && Number.isFinite(ttlAt)) request.set(TTL, num(Math.ceil(ttlAt / 1000)));
  return request.write();
}

export function attribute(value: string | number): Attribute {
  return typeof value === 'number' ? num(value) : text(value);
}
