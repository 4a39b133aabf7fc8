import { randomBytes } from 'node:crypto';
import { InvalidInput } from '../../base/errors.ts';
import {
  attribute,
  creation,
  type DynamoEngine,
  Expression,
  type Fields,
  fieldsOf,
  type Item,
  type Key,
  num,
  type PartialWrite,
  TableRows,
  written,
} from '../../engine/dynamodb/index.ts';
import { type ActorHead, type InboxRow, readHead } from './heads/head.ts';
import type { WakeRow } from './heads/wake.ts';
import { actorKey, HEAD, headOf, INBOX, inboxOf, lineFrom, lineOf, sortKey } from './rows.ts';

const AT_ONCE = 1000;
const DROPS_AT_ONCE = 20;

/** A wake row of a line, with its key. */
export interface LineRow extends WakeRow {
  readonly key: Key;
}

/** A head, and the inbox, which was read after it. */
export interface SeenActor {
  readonly head: ActorHead | undefined;
  readonly inbox: readonly InboxRow[];
}

/** The rows of actors: reads, and conditional changes of the rows that decide. */
export class ActorRows extends TableRows<DynamoEngine> {
  async head(actor: number): Promise<ActorHead | undefined> {
    const item = await this.get(headOf(actor));
    return item === undefined ? undefined : readHead(fieldsOf(item));
  }

  /** Reads the head and the inbox of an actor, in one request if they have at most a megabyte. */
  async look(actor: number): Promise<SeenActor> {
    const items = await this.all(actorKey(actor), HEAD, INBOX.last);
    const first = items[0];
    const isThere = first !== undefined && sortKey(first) === HEAD;
    return {
      head: isThere ? readHead(fieldsOf(first)) : undefined,
      inbox: items.filter((item) => sortKey(item) !== HEAD).map(readInbox),
    };
  }

  /** All rows, in as many requests as it takes. */
  async all(pk: string, from: string, to: string): Promise<readonly Item[]> {
    const items: Item[] = [];
    for (let first = from; ; ) {
      const page = await this.page(pk, first, to, AT_ONCE);
      items.push(...page.items);
      const last = page.items.at(-1);
      if (page.isWhole || last === undefined) return items;
      first = `${sortKey(last)}\u0000`;
    }
  }

  /** Writes a row without a condition. A repetition writes the same row. */
  async put(key: Key, fields: Fields): Promise<void> {
    const request = new Expression();
    for (const [name, value] of Object.entries(fields)) request.set(name, attribute(value));
    await this.engine.update(key, request.write(), 'NONE', this.limits);
  }

  /** Raises a counter. A repetition leaves a gap, which means nothing. @returns the last of the numbers that were taken */
  async count(key: Key, by: number = 1): Promise<number> {
    const request = new Expression();
    request.setTo('q', `if_not_exists(q, ${request.value(num(0))}) + ${request.value(num(by))}`);
    const { item } = await this.engine.update(key, request.write(), 'ALL_NEW', this.limits);
    return Number(fieldsOf(item)['q']);
  }

  async drop(key: Key): Promise<void> {
    await this.engine.remove(key, {}, this.limits);
  }

  /** Removes many rows, a few at a time, since a client has some fifty connections, and heartbeats need one. */
  async dropAll(keys: readonly Key[]): Promise<void> {
    const due = keys.values();
    const drop = async (): Promise<void> => {
      for (const key of due) await this.drop(key);
    };
    await Promise.all(Array.from({ length: Math.min(DROPS_AT_ONCE, keys.length) }, drop));
  }

  /** Removes a row, unless its fields have changed since it was read. */
  async dropIf(key: Key, seen: Fields): Promise<void> {
    await this.engine.remove(key, written({ expect: seen, set: {} }), this.limits);
  }
}

function readInbox(item: Item): InboxRow {
  const fields = fieldsOf(item);
  const { s } = fields;
  return {
    name: sortKey(item).slice(INBOX.first.length),
    semaphore: s === undefined ? undefined : String(s),
    n: Number(fields['n'] ?? 1),
  };
}

/** A row has at most 400 KB, and it also holds the rest of an actor. */
const MOST_BYTES = 300_000;

/** @throws InvalidInput  it does not fit into a row */
export function requireFits(what: string, json: string | undefined): void {
  if (json === undefined || json.length * 3 < MOST_BYTES) return;
  const bytes = Buffer.byteLength(json);
  if (bytes <= MOST_BYTES) return;
  throw new InvalidInput(
    `${what} has ${bytes} bytes as JSON, and a row of DynamoDB holds at most ${MOST_BYTES}; store the rest elsewhere`,
    { field: what },
  );
}

/** A name that is never used again. */
export function freshName(): string {
  return randomBytes(8).toString('base64url');
}

/** The line in which workers look for an actor. @param shards  the number of shards of its type */
export function lineFor(type: number, actor: number, shards: number, isAlone = false): string {
  return lineOf(type, isAlone ? undefined : actor % shards);
}

/** A wake row of a line, as a part of a transaction. */
export function wakeWrite(line: string, row: WakeRow): PartialWrite {
  return { key: wakeKey(line, row), written: creation(wakeFields(row)) };
}

export function wakeKey(line: string, { at, actor, name }: WakeRow): Key {
  return { pk: line, sk: `${lineFrom(at)}#${actor}#${name}` };
}

export function wakeFields({ kind, epoch }: WakeRow): Fields {
  return { k: kind, e: epoch };
}

export function readWake(line: string, item: Item): LineRow {
  const sk = sortKey(item);
  const [, at = '0', actor = '0', name = ''] = sk.split('#');
  const fields = fieldsOf(item);
  return {
    at: Number(at),
    actor: Number(actor),
    name,
    kind: kindOf(fields['k']),
    epoch: Number(fields['e'] ?? 0),
    key: { pk: line, sk },
  };
}

const KINDS = ['time', 'signal', 'always', 'child'] as const;

function kindOf(value: unknown): WakeRow['kind'] {
  return KINDS.find((kind) => kind === value) ?? 'signal';
}

/** A row of the inbox, as a part of a transaction. */
export function inboxWrite(actor: number, { name, semaphore, n }: InboxRow): PartialWrite {
  return { key: inboxOf(actor, name), written: creation({ s: semaphore, n }) };
}
