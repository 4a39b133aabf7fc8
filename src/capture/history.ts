import { InvalidInput } from '../base/errors.ts';
import { checkOptions, custom, integer, optional, text } from '../base/options/options.ts';
import { refusal } from '../base/options/refusal.ts';
import type { PostgresEngine } from '../engine/postgres/index.ts';
import { type CapturedChange, toChange } from './change.ts';
import { loggedTables } from './declare/numbers.ts';
import { type Definition, linkNumber, showTable } from './declare/source.ts';
import { readHistory } from './postgres/change.ts';

export interface HistoryOptions {
  /** The key of the entity. With a `table` that leads to entities by a link: the value of that link. */
  readonly key?: string | number | bigint | undefined;
  readonly table?: string | undefined;
  readonly since?: Date | undefined;
  readonly until?: Date | undefined;
  readonly actor?: string | undefined;
  /** Text that occurs in one of the stored values. */
  readonly words?: string | undefined;
  /** The id of the last change of the page before. */
  readonly before?: string | undefined;
  /** 1 to 10,000. Default 100. */
  readonly limit?: number | undefined;
}

const when = custom('a Date', (value, place): Date => {
  if (!(value instanceof Date) || Number.isNaN(value.getTime())) throw refusal(place, value, 'a valid Date');
  return value;
});

const shape = {
  key: optional(
    custom('a string or a number', (value, place) => {
      if (typeof value === 'string' || typeof value === 'number' || typeof value === 'bigint') return String(value);
      throw refusal(place, value, 'a string or a number');
    }),
  ),
  table: optional(text({ min: 1 })),
  since: optional(when),
  until: optional(when),
  actor: optional(text()),
  words: optional(text({ min: 1 })),
  before: optional(text({ pattern: [/^\d{1,18}$/, 'the id of a change'] })),
  limit: integer({ min: 1, max: 10_000, default: 100 }),
};

/** Finds changes, newest first. @throws InvalidInput */
export async function searchHistory(
  engine: PostgresEngine,
  { capture, definition }: { capture: number; definition: Definition },
  options: HistoryOptions,
): Promise<CapturedChange[]> {
  const { table, ...given } = checkOptions('history', options, shape);
  const { sources } = definition;
  const source = table === undefined ? undefined : loggedTables(definition).find((one) => showTable(one) === table);
  if (table !== undefined && source === undefined) {
    const names = sources.map(showTable).join(', ');
    throw new InvalidInput(`the table "${table}" is not captured; there are ${names}`, { field: 'table' });
  }
  const direct = sources.filter((one) => linkNumber(one) === 0 || one.holdsKeys).map(({ number }) => number);
  const rows = await readHistory(engine, capture, {
    ...given,
    source: source?.number,
    direct: source === undefined && given.key !== undefined ? direct : undefined,
  });
  return rows.map((row) => toChange(row, definition));
}
