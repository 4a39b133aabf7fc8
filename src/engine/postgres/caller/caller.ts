import { ConnectionFailed, InvalidInput } from '../../../base/errors.ts';
import { type Check, custom, optional } from '../../../base/options/options.ts';
import { failure } from '../failure.ts';
import type { SchemaName } from '../schema/name.ts';
import type { Transaction } from '../session/transaction.ts';
import { LIBRARIES } from './library.ts';

type AnyFunction = (...given: never[]) => unknown;

/**
 * An open transaction of your own, as `tx`: the value that a callback gets from `engine.transaction`, node-postgres (the
 * client), postgres.js, kysely, drizzle, knex, prisma, typeorm or mikro-orm. Described by shape, so that none of these has to
 * be installed. Whether the transaction is open is checked when it is used.
 */
export type OpenTransaction =
  | Transaction
  | { readonly query: AnyFunction }
  | { readonly unsafe: AnyFunction }
  | { readonly executeQuery: AnyFunction }
  | { readonly execute: AnyFunction }
  | { readonly raw: AnyFunction }
  | { readonly $queryRawUnsafe: AnyFunction };

/**
 * The option `tx` of every call that writes; undefined if it was left out. A value that can be no transaction is refused at
 * once. Whether the transaction is open is checked when it is used; some calls use it long after they were made.
 */
export const openTransaction: Check<OpenTransaction | undefined> = optional(
  custom('an open transaction', (value) => toHolder(value) as OpenTransaction),
);

/** One row, in the form of the caller's library. */
export type Row = Record<string, unknown>;

/**
 * Runs one statement of Pawl's with one text parameter inside the caller's own transaction, of any known library. The statement
 * is committed or rolled back with the rest of the transaction.
 *
 * `text` names `$1` exactly once and has no other parameter. The parameter is always sent as text, and the statement casts it:
 * postgres.js, for example, would quote a string for a jsonb parameter once more.
 * @throws InvalidInput if `tx` is no transaction of a known library, or not inside a transaction
 */
export async function callInTransaction(
  tx: unknown,
  schema: SchemaName,
  { text, value }: { readonly text: string; readonly value: string },
): Promise<Row[]> {
  const holder = toHolder(tx);
  const library = LIBRARIES.find((candidate) => candidate.fits(holder));
  if (library === undefined) {
    throw new InvalidInput(`tx is no transaction that Pawl knows; ${ACCEPTED}`, { field: 'tx' });
  }
  if (!library.isInTransaction(holder)) {
    throw new InvalidInput(
      `tx is a ${library.name} connection outside a transaction, so the call would be committed on its own; ` +
        'open a transaction first, or leave tx out',
      { field: 'tx' },
    );
  }
  try {
    return toRows(await library.run(holder, asTextParameter(schema.text(text)), value));
  } catch (error) {
    throw failure(driverError(error), schema.name);
  }
}

const ACCEPTED =
  'pass the transaction that the callback of one of these receives: Pawl (engine.transaction), pg Client, postgres.js, ' +
  'kysely, drizzle, knex, prisma, typeorm, mikro-orm';

function toHolder(tx: unknown): object {
  if ((typeof tx !== 'object' && typeof tx !== 'function') || tx === null) {
    throw new InvalidInput(`tx is ${tx === null ? 'null' : `a ${typeof tx}`}; ${ACCEPTED}`, { field: 'tx' });
  }
  return tx;
}

/** `$1::jsonb` → `$1::text::jsonb`: every library sends a string for a text parameter unchanged. */
function asTextParameter(text: string): string {
  if (text.match(/\$\d+/g)?.join() !== '$1') {
    throw new InvalidInput(`the statement must name $1 exactly once and no other parameter: ${text}`);
  }
  return text.replace(/\$1(?!::text)/, () => '$1::text');
}

/** Libraries answer with the rows, or with a result that has them. */
function toRows(result: unknown): Row[] {
  if (Array.isArray(result)) {
    return [...(result as Row[])];
  }
  const rows = field(result, 'rows');
  if (!Array.isArray(rows)) {
    throw new InvalidInput(`tx answered without rows; ${ACCEPTED}`, { field: 'tx' });
  }
  return rows as Row[];
}

/** drizzle, typeorm and mikro-orm wrap the driver's error: the error of the server or the connection is further down. */
function driverError(error: unknown): unknown {
  let current = error;
  for (let depth = 0; depth < 5 && current instanceof Error; depth += 1) {
    if (typeof Reflect.get(current, 'severity') === 'string' || failure(current) instanceof ConnectionFailed) {
      return current;
    }
    current = current.cause ?? field(current, 'driverError') ?? field(current, 'previous');
  }
  return prismaError(error) ?? error;
}

/**
 * prisma has the SQLSTATE in a record of its driver adapter. With its own engine, which is the default up to version 6, prisma
 * has it in `meta` itself.
 */
function prismaError(error: unknown): Error | undefined {
  const meta = field(error, 'meta');
  const record = field(field(meta, 'driverAdapterError'), 'cause');
  const code = field(record, 'originalCode') ?? field(meta, 'code');
  const message = field(record, 'originalMessage') ?? field(meta, 'message');
  if (typeof code !== 'string' || typeof message !== 'string') return undefined;
  const told = new Error(message.replace(/^ERROR: /, ''), { cause: error });
  const constraint = field(field(record, 'constraint'), 'index');
  return Object.assign(told, { code, severity: 'ERROR', column: field(record, 'column'), constraint });
}

function field(holder: unknown, name: string): unknown {
  return holder instanceof Object ? Reflect.get(holder, name) : undefined;
}
