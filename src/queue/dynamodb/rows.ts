/** The rows of a queue: their keys, and the fields of rows of jobs. */
import {
  creation,
  digits,
  Expression,
  fieldsOf,
  type Item,
  type Key,
  num,
  type RequestTexts,
  text,
} from '../../engine/dynamodb/index.ts';
import type { Origin, OwnOptions } from '../job-options.ts';
import { JOBS, type JobRef } from './heads/place.ts';

/** The beginning of the keys of all rows of a queue. The length of its name tells where the name ends. */
export function queueKey(queue: string): string {
  return `queue:${queue.length}:${queue}`;
}

/** The partition of a shard: its head, pieces, records and delays. */
export function shardKey(queue: string, shard: number): string {
  return `${queueKey(queue)}:${shard}`;
}

export function headOf(pk: string): Key {
  return { pk, sk: 'head' };
}

/** The declaration of the queue. */
export function declarationOf(queue: string): Key {
  return { pk: queueKey(queue), sk: 'queue' };
}

/** The list of all queues of the table. */
export const QUEUES = { pk: 'queues', first: 'q#', last: 'q#\u{10ffff}' } as const;

/** The row that lists the queue. */
export function queueNameOf(queue: string): Key {
  return { pk: QUEUES.pk, sk: `${QUEUES.first}${queue}` };
}

export function workersKey(queue: string): string {
  return `${queueKey(queue)}:workers`;
}

/** A schedule. Its row is next to the declaration. */
export function scheduleOf(queue: string, name: string): Key {
  return { pk: queueKey(queue), sk: `${SCHEDULES.first}${name}` };
}

export const SCHEDULES = { first: 't#', last: 't#\u{10ffff}' } as const;

/** The partition of a key: its head and its jobs. */
export function keyOf(shard: string, key: string): string {
  return `${shard}:k:${key}`;
}

/** The row that names the one job of a unique kind and a value, of whatever shard. The value is a key, or a digest of the payload or a part of it. */
export function uniqueOf(queue: string, kind: string, by: 'k' | 'd', value: string): Key {
  return { pk: `${queueKey(queue)}:u${by}:${kind.length}:${kind}:${value}`, sk: 'head' };
}

/** The row of a piece, or of the jobs of one key among those of a piece. */
export function pieceOf(pk: string, piece: number): Key {
  return { pk, sk: `j#${digits(piece, 12)}` };
}

/** An empty piece. It fills the number of a producer that does not use it, or that workers have given up. */
export function emptyPiece(at: number): RequestTexts {
  return creation({ n: 0, o: 'given up', t: at });
}

/** A field of a row of jobs: how often people have changed one of them, or brought it back. */
const CHANGES = 'h';

/** Counts a change of a job of the row by hand. The price grows with the size of all jobs of the row. */
export function changedByHand(): RequestTexts {
  const request = new Expression().when('attribute_exists(pk)');
  const known = `if_not_exists(${request.name(CHANGES)}, ${request.value(num(0))})`;
  return request.setTo(CHANGES, `${known} + ${request.value(num(1))}`).write();
}

/** The condition that no job of the row was changed by hand since the row was read. */
export function unchangedByHand(changes: number): RequestTexts {
  const request = new Expression();
  return (changes === 0 ? request.whenAbsent(CHANGES) : request.whenIs(CHANGES, num(changes))).write();
}

/** The row in which a job that was enqueued for later waits for its time. */
export function delayOf(shard: string, dueAt: number, piece: number): Key {
  return { pk: shard, sk: `${delayFrom(dueAt)}#${digits(piece, 12)}` };
}

/** The beginning of the sort keys of the delays of a time. */
export function delayFrom(dueAt: number): string {
  return `d#${digits(dueAt, 15)}`;
}

export const DELAYS = { first: 'd#', last: 'd#~' } as const;

/** The record that one settlement writes about jobs of a piece. */
export function recordOf(shard: string, piece: number, token: number, part: string): Key {
  return { pk: shard, sk: `${recordsOf(piece)}${digits(token, 12)}#${part}` };
}

/** The beginning of the records of a piece. */
export function recordsOf(piece: number): string {
  return `o#${digits(piece, 12)}#`;
}

/** The progress of a job. */
export function progressOf(shard: string, job: number): Key {
  return { pk: shard, sk: `g#${digits(job, 16)}` };
}

/** A row of jobs, as it was read. */
export interface JobRow {
  readonly piece: number;
  /** 0 in an empty row, which fills the number of a producer that was given up. */
  readonly n: number;
  /** Identifies the enqueue. */
  readonly nonce: string;
  readonly enqueuedAt: number;
  /** The jobs are delayed until this time; 0: they are not delayed. */
  readonly dueAt: number;
  /** The index of each job in its piece. */
  readonly indexes: readonly number[];
  readonly kinds: readonly number[];
  readonly priorities: readonly number[];
  /** Empty in a piece of jobs with keys, whose payloads are in the rows of the keys. */
  readonly payloads: readonly unknown[];
  readonly keys: readonly string[] | undefined;
  /** True: a key is only a label of its job, and the piece has the payloads. */
  readonly isLabelled: boolean;
  readonly options: readonly (OwnOptions | null)[] | undefined;
  readonly trace: string | undefined;
  /** How often people have changed one of its jobs, or brought it back. */
  readonly changes: number;
  /** The jobs and batches that its only job comes after. */
  readonly parents: readonly JobRef[] | undefined;
  /** By index: times that were set by hand since the enqueue, or that count once the parents have ended; 0: at once. */
  readonly times: Readonly<Record<number, number>>;
}

/** The fields of a new row of jobs. */
export function jobFields(row: Omit<JobRow, 'piece' | 'n' | 'changes'>): Record<string, string | number | undefined> {
  const {
    nonce,
    enqueuedAt,
    dueAt,
    indexes,
    kinds,
    priorities,
    payloads,
    keys,
    isLabelled,
    options,
    trace,
    parents,
    times,
  } = row;
  const isPlain = indexes.every((index, at) => index === at);
  return {
    n: indexes.length,
    o: nonce,
    t: enqueuedAt,
    r: dueAt === 0 ? undefined : dueAt,
    i: isPlain ? undefined : JSON.stringify(indexes),
    c: JSON.stringify(compact(kinds)),
    p: priorities.every((priority) => priority === 0) ? undefined : JSON.stringify(compact(priorities)),
    y: payloads.length === 0 ? undefined : JSON.stringify(payloads),
    k: keys === undefined ? undefined : JSON.stringify(keys),
    b: isLabelled ? 1 : undefined,
    m: options === undefined ? undefined : JSON.stringify(options),
    e: trace,
    a: parents === undefined ? undefined : JSON.stringify(parents),
    u: Object.keys(times).length === 0 ? undefined : JSON.stringify(times),
  };
}

export function readJobRow(item: Item): JobRow {
  const fields = fieldsOf(item);
  const { sk } = item;
  const n = Number(fields['n'] ?? 0);
  const list = (name: string): unknown[] | undefined =>
    fields[name] === undefined ? undefined : JSON.parse(String(fields[name]));
  const each = (name: string): number[] => spread((list(name) ?? [0]).map(Number), n);
  return {
    piece: sk !== undefined && 'S' in sk ? Number(sk.S.slice(2)) : 0,
    n,
    nonce: String(fields['o'] ?? ''),
    enqueuedAt: Number(fields['t'] ?? 0),
    dueAt: Number(fields['r'] ?? 0),
    indexes: list('i')?.map(Number) ?? Array.from({ length: n }, (_, index) => index),
    kinds: each('c'),
    priorities: each('p'),
    payloads: list('y') ?? [],
    keys: list('k')?.map(String),
    isLabelled: fields['b'] !== undefined,
    options: fields['m'] === undefined ? undefined : JSON.parse(String(fields['m'])),
    trace: fields['e'] === undefined ? undefined : String(fields['e']),
    changes: Number(fields[CHANGES] ?? 0),
    parents: list('a')?.map((one) => (typeof one === 'number' ? one : String(one))),
    times: JSON.parse(String(fields['u'] ?? '{}')),
  };
}

/** A change of one job of a row by hand. */
export interface RowChange {
  /** The place of the job in the row. */
  readonly at: number;
  readonly payload?: unknown;
  /** An option that is undefined is removed. */
  readonly options?: { readonly [N in keyof OwnOptions]: OwnOptions[N] | undefined } | undefined;
  readonly priority?: number | undefined;
  readonly runAt?: number | undefined;
}

/** Changes one job of a row, unless a job of the row was changed since it was read. @returns the request, and the payloads that it writes */
export function rowChanged(
  row: JobRow,
  change: RowChange,
): { readonly written: RequestTexts; readonly payloads: string } {
  const { at } = change;
  const request = new Expression().when('attribute_exists(pk)');
  if (row.changes === 0) request.whenAbsent(CHANGES);
  else request.whenIs(CHANGES, num(row.changes));
  request.set(CHANGES, num(row.changes + 1));
  const set = (name: string, value: unknown): string => {
    const json = JSON.stringify(value);
    request.set(name, text(json));
    return json;
  };
  const payloads = change.payload === undefined ? '' : set('y', row.payloads.with(at, change.payload));
  if (change.options !== undefined) {
    const options = row.options ?? row.indexes.map(() => null);
    const own: OwnOptions = JSON.parse(JSON.stringify({ ...options[at], ...change.options }));
    set('m', options.with(at, own));
  }
  if (change.priority !== undefined) set('p', row.priorities.with(at, change.priority));
  if (change.runAt !== undefined) set('u', { ...row.times, [row.indexes[at] ?? 0]: change.runAt });
  return { written: request.write(), payloads };
}

/** The enqueue of a job of a row, except its payload. @param now  by the service's clock */
export function originOf(row: JobRow, at: number, now: number): Origin {
  const own = row.options?.[at];
  if (own === undefined || own === null) return row.enqueuedAt;
  const origin = { enqueuedAt: row.enqueuedAt, options: own };
  const { expiresAt } = own;
  return expiresAt === undefined ? origin : { ...origin, expiresIn: Date.parse(expiresAt) - now };
}

/** A list of one element, if all elements are equal. */
function compact(values: readonly number[]): readonly number[] {
  return values.every((value) => value === values[0]) ? values.slice(0, 1) : values;
}

function spread(values: readonly number[], n: number): number[] {
  return values.length === 1 ? Array.from({ length: n }, () => values[0] ?? 0) : [...values];
}

/** The largest piece in bytes: a row has at most 400 KB, and this leaves room for its other fields. */
export const MOST_PIECE = 350_000;
export const MOST_JOBS: number = JOBS;
