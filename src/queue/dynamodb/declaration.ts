/** The declaration of a queue, as its row stores it. Operators read it, since they do not have the program of the queue. */
import { NotFound } from '../../base/errors.ts';
import { suggest } from '../../base/options/options.ts';
import { type Change, creation, type DynamoEngine, type Fields, fieldsOf } from '../../engine/dynamodb/index.ts';
import { define } from '../declare/define.ts';
import { isOneEver, type UniqueOptions, type UniqueRule } from '../declare/unique.ts';
import { type Definition, type KindOptions } from '../definition.ts';
import type { QueueRows } from './database.ts';
import { declarationOf, QUEUES, queueNameOf } from './rows.ts';

const F = {
  version: 'v',
  shards: 's',
  keyed: 'k',
  kinds: 'c',
  at: 't',
  attempts: 'a',
  historyMs: 'h',
  options: 'o',
} as const;
const MOST_QUEUES = 1000;
const TIMEOUT_MS = 10_000;

export interface DeclarationRow {
  readonly name: string;
  readonly shards: number;
  readonly keyed: boolean;
  /** The number of a kind is its index here. */
  readonly kinds: readonly string[];
  readonly attempts: number;
  readonly historyMs: number;
  readonly declaredAt: number;
  /** By kind; only kinds with options of their own. */
  readonly options: Readonly<Record<string, Pick<KindOptions, 'attempts' | 'unique' | 'coalesce' | 'debounce'>>>;
}

/** @returns undefined if the queue is not declared yet */
export function readDeclared(name: string, fields: Fields): DeclarationRow | undefined {
  if (fields[F.version] === undefined) return undefined;
  return {
    name,
    shards: Number(fields[F.shards]),
    keyed: fields[F.keyed] === 1,
    kinds: JSON.parse(String(fields[F.kinds])),
    attempts: Number(fields[F.attempts]),
    historyMs: Number(fields[F.historyMs] ?? Infinity),
    declaredAt: Number(fields[F.at]),
    options: JSON.parse(String(fields[F.options] ?? '{}')),
  };
}

/** Writes the declaration of a program. Kinds that other programs have declared stay. @returns undefined if the row says the same already */
export function declared(fields: Fields, definition: Definition, now: number): Change | undefined {
  const known = readDeclared(definition.name, fields);
  const { shards, keyed, attempts, historyMs } = definition;
  const kinds = [...(known?.kinds ?? [])];
  for (const kind of definition.kinds.keys()) if (!kinds.includes(kind)) kinds.push(kind);
  const options = { ...known?.options };
  for (const { name, ...kind } of definition.kinds.values()) {
    const own = {
      ...(kind.attempts !== attempts && { attempts: kind.attempts }),
      ...(kind.unique !== undefined && { unique: declaredRule(kind.unique) }),
      ...(kind.coalesce !== 'none' && { coalesce: kind.coalesce }),
      ...(kind.debounce !== undefined && { debounce: { wait: kind.debounce.waitMs, max: kind.debounce.maxMs } }),
    };
    if (Object.keys(own).length === 0) delete options[name];
    else options[name] = own;
  }
  const set = {
    [F.shards]: shards,
    [F.keyed]: Number(keyed),
    [F.kinds]: JSON.stringify(kinds),
    [F.attempts]: attempts,
    [F.historyMs]: Number.isFinite(historyMs) ? historyMs : null,
    [F.options]: Object.keys(options).length === 0 ? null : JSON.stringify(options),
  };
  if (Object.entries(set).every(([name, value]) => (fields[name] ?? null) === value)) return undefined;
  const version = fields[F.version] ?? null;
  return {
    expect: { [F.version]: version },
    set: { ...set, [F.version]: Number(version ?? 0) + 1, [F.at]: fields[F.at] ?? now },
  };
}

/** The rule in the form in which a program declares it. */
function declaredRule(rule: UniqueRule): 'key' | UniqueOptions {
  if (isOneEver(rule)) return 'key';
  const { per, ...rest } = rule;
  return per === undefined ? rest : { ...rest, per: Number.parseFloat(per) };
}

/** The definition, without its program: of the options of kinds it has those that the row stores. */
export function definitionOf({ name, shards, keyed, kinds, attempts, historyMs, options }: DeclarationRow): Definition {
  const definition = define(name, {
    shards,
    retry: { attempts },
    history: Number.isFinite(historyMs) ? historyMs : '36500d',
    ...(!keyed && { concurrency: { perKey: Infinity } }),
    kinds: Object.fromEntries(kinds.map((kind) => [kind, { ...options[kind] }])),
  });
  return { ...definition, historyMs };
}

/** Puts the name into the list of all queues. Call it before the declaration, so that each declared queue is listed. */
export async function listName(rows: QueueRows): Promise<void> {
  await rows.engine.update(queueNameOf(rows.queue), creation({ t: rows.engine.now() }), 'NONE', rows.limits);
}

/** The names of the first thousand queues of a table, in order. One request. */
export async function queueNames(engine: DynamoEngine): Promise<string[]> {
  const { pk, first, last } = QUEUES;
  const items = await engine.range(pk, first, last, MOST_QUEUES, { timeoutMs: TIMEOUT_MS });
  return items.flatMap(({ sk }) => (sk !== undefined && 'S' in sk ? [sk.S.slice(first.length)] : []));
}

/** @throws NotFound */
export async function declaredOf(rows: QueueRows): Promise<DeclarationRow> {
  const found = readDeclared(rows.queue, fieldsOf(await rows.get(declarationOf(rows.queue))));
  if (found !== undefined) return found;
  const names = await queueNames(rows.engine);
  const near = suggest(rows.queue, names);
  const advice = near !== undefined ? `did you mean "${near}"?` : `the table has ${names.join(', ') || 'none'}`;
  throw new NotFound(`queue "${rows.queue}" does not exist; ${advice}`);
}
