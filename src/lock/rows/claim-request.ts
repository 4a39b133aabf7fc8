import { contradiction } from '../../base/options/kinds.ts';
import { checkOptions, custom, duration, integer, optional } from '../../base/options/options.ts';
import type { OptionPath } from '../../base/options/refusal.ts';
import { isObject, readShape } from '../../base/options/shape.ts';
import type { SchemaName } from '../../engine/postgres/index.ts';
import { pawlSchema } from './table.ts';
import { type ColumnLookups, compare, lookUpColumn, lookUpValue, readWhere, type WireCondition } from './where.ts';

/** The request of a capture to the database. */
export interface CaptureRequest extends ColumnLookups {
  readonly status: { readonly column: string; readonly from: WireCondition; readonly to: string };
  readonly limit: number;
  readonly where: readonly WireCondition[];
  readonly order: readonly { readonly column: string; readonly desc: boolean }[];
  readonly retries: string | undefined;
  readonly token: string | undefined;
  readonly lease: { readonly column: string | undefined; readonly ms: number } | undefined;
}

const MOST_ROWS = 10_000;
const LEASE = { min: '100ms', max: '365d' } as const;

/** Reads the options of captureRows(). @throws InvalidInput */
export function readCapture(what: string, given: unknown): { request: CaptureRequest; schema: SchemaName | undefined } {
  const lookups: ColumnLookups = { columns: [], values: [] };
  const column = (as?: 'token' | 'lease' | 'retries') =>
    custom('the name of a column', (value, place) => lookUpColumn(value, place, lookups, as));
  const options = checkOptions(what, given, {
    status: custom('an object { from, to }', (value, place) => readStatus(value, place, lookups)),
    limit: integer({ min: 1, max: MOST_ROWS }),
    where: custom(
      'an object of columns, sql`…`, or an array of these',
      (value, place) => readWhere(value, place, lookups),
      {
        default: {},
      },
    ),
    orderBy: custom(
      'a column, { column, desc }, or an array of these',
      (value, place) => readOrder(value, place, lookups),
      {
        default: [],
      },
    ),
    retries: optional(column('retries')),
    queueId: optional(custom('an object { column, value }', (value, place) => readQueueId(value, place, lookups))),
    token: optional(column('token')),
    pawlSchema,
    lease: optional(
      custom("a duration such as '30s', or { column, for }", (value, place) => readLease(value, place, lookups)),
    ),
  });
  const { queueId, where, orderBy, pawlSchema: schema, ...rest } = options;
  if (rest.lease !== undefined && rest.lease.column === undefined && rest.token !== undefined) {
    throw contradiction(
      { field: 'lease', what },
      `must be { column, for } when the token has a column: the lease is stored where the token is`,
    );
  }
  const conditions = queueId === undefined ? where : [...where, queueId];
  return { request: { ...rest, ...lookups, order: orderBy, where: conditions }, schema };
}

function readStatus(given: unknown, place: OptionPath, lookups: ColumnLookups): CaptureRequest['status'] {
  const at = (key: string): OptionPath => ({ ...place, field: `${place.field}.${key}` });
  const { column, from, to } = readShape(
    given,
    {
      column: custom('the name of a column', (value, inside) => lookUpColumn(value, inside, lookups), {
        default: 'status',
      }),
      from: custom('a status, or an array of them', (value) => (Array.isArray(value) ? value : [value])),
      to: custom('a status', (value) => value),
    },
    place,
  );
  const condition = compare(column, 'in', from, at('from'), lookups);
  const target = lookUpValue(column, to, at('to'), lookups);
  if (target === null) throw contradiction(at('to'), 'must be a status, but was null');
  if (condition.values.includes(target)) {
    throw contradiction(at('from'), `must not have "${target}", the status that the rows are moved to`);
  }
  return { column, from: condition, to: target };
}

function readOrder(given: unknown, place: OptionPath, lookups: ColumnLookups): CaptureRequest['order'] {
  const orders: readonly unknown[] = Array.isArray(given) ? given : [given];
  return orders.map((order) => {
    const { column, desc = false } = isObject(order) ? order : { column: order };
    if (typeof desc !== 'boolean') throw contradiction(place, 'takes desc: true or desc: false');
    return { column: lookUpColumn(column, place, lookups), desc };
  });
}

function readQueueId(given: unknown, place: OptionPath, lookups: ColumnLookups): WireCondition {
  const { column, value } = readShape(
    given,
    { column: custom('the name of a column', (name) => name), value: custom('a value', (queue) => queue) },
    place,
  );
  const name = lookUpColumn(column, { ...place, field: `${place.field}.column` }, lookups);
  return {
    column: name,
    op: 'in',
    values: [lookUpValue(name, value, { ...place, field: `${place.field}.value` }, lookups)],
  };
}

function readLease(given: unknown, place: OptionPath, lookups: ColumnLookups): CaptureRequest['lease'] {
  if (!isObject(given)) return { column: undefined, ms: duration(LEASE).given(given, place) };
  const lease = readShape(
    given,
    {
      column: custom('the name of a column', (value, inside) => lookUpColumn(value, inside, lookups, 'lease')),
      for: duration(LEASE),
    },
    place,
  );
  return { column: lease.column, ms: lease.for };
}
