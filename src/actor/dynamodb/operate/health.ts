import { fieldsOf, type Item } from '../../../engine/dynamodb/index.ts';
import type { ActorHealth } from '../../postgres/reader.ts';
import { readWake } from '../database.ts';
import { type ActorHead, ALONE, isFree } from '../heads/head.ts';
import { STATE_PAUSED } from '../heads/wake.ts';
import { P } from '../pages/page-row.ts';
import { HELD, heldKey, lineFrom, lineOf, sortKey, WORKERS } from '../rows.ts';
import type { DynamoActorStore } from '../store.ts';
import type { TypeRow } from '../types.ts';
import { lostTag } from '../work/rescue.ts';

const MOST_WORKERS = 1000;
const MOST_HELD = 100;
/** How many rows of a line are read, since a row may be there without need. */
const ROWS_AT_ONCE = 20;
/** If the lease of a worker has been over for this time, no other worker has replaced it, since others would have removed its row. */
const REPLACED_MS = 15_000;

/**
 * Problems of the actors of a table. It takes a query for workers, one for open pages, one for each type, and one for each line of a type that no
 * worker takes. It also reads each actor that these name.
 */
export async function healthOf(store: DynamoActorStore): Promise<ActorHealth> {
  const { rows, types, pages } = store;
  const now = await rows.engine.serviceTime(rows.limits);
  const [workers, open, known] = await Promise.all([
    rows.range(WORKERS, 'w#', 'w#~', MOST_WORKERS),
    pages.openPages(),
    types.fresh(),
  ]);
  const living = workers.filter((item) => overForMs(item, now) < 0);
  const taken = new Set(living.flatMap((item): number[] => JSON.parse(String(fieldsOf(item)['y'] ?? '[]'))));
  const left = [...known.values()].filter(({ id, pausedAt }) => pausedAt === 0 && !taken.has(id));
  const lines = left.flatMap((type) => linesOf(type).map((line) => ({ type, line })));
  const due = await Promise.all(lines.map(({ line }) => isDue(store, line, now)));
  const lostActors = open.flatMap((page) => actorOf(String(page[P.tag])));
  return {
    unattended: [...new Set(lines.filter((_, at) => due[at]).map(({ type }) => type.name))].sort(),
    held: await heldAmong(store, [...known.values()], lostActors),
    lostWorkers: workers.filter((item) => overForMs(item, now) > REPLACED_MS).map(processOf),
    openPages: open.length,
  };
}

/** For how long the lease of a worker has been over, by the clock of the service, which each heartbeat writes. Below 0: it is not over. */
function overForMs(item: Item, now: number): number {
  const { b, t, l } = fieldsOf(item);
  return now - Math.max(Number(b ?? 0), Number(t ?? 0)) - Number(l ?? 0);
}

function processOf(item: Item): string {
  const { h, i } = fieldsOf(item);
  return `${h}:${i}`;
}

function linesOf({ id, shards }: TypeRow): string[] {
  return [...Array.from({ length: shards }, (_, shard) => lineOf(id, shard)), lineOf(id, undefined)];
}

/** Whether a turn of one of the first actors of a line could begin now. */
async function isDue({ rows }: DynamoActorStore, line: string, now: number): Promise<boolean> {
  const items = await rows.range(line, 'w#', `${lineFrom(now)}~`, ROWS_AT_ONCE);
  const found = items.map((item) => readWake(line, item));
  const heads = await Promise.all(found.map(({ actor }) => rows.head(actor)));
  return heads.some(
    (head, at) => head !== undefined && isFree(head) && (found[at]?.kind !== 'time' || isTime(head, now)),
  );
}

function isTime({ wakeAt }: ActorHead, now: number): boolean {
  return wakeAt !== undefined && wakeAt <= now;
}

/** The actor of a page about an actor that is held because its processes died. */
function actorOf(tag: string): number[] {
  const actor = Number(tag.slice(lostTag(0).length - 1));
  return tag === lostTag(actor) ? [actor] : [];
}

async function heldAmong(
  { rows }: DynamoActorStore,
  types: readonly TypeRow[],
  lost: readonly number[],
): Promise<ActorHealth['held']> {
  const named = await Promise.all(types.map(({ id }) => rows.range(heldKey(id), HELD.first, HELD.last, MOST_HELD)));
  const ids = [...new Set([...lost, ...named.flat().map((item) => Number(sortKey(item).split('#')[1]))])];
  const first = ids.sort((a, b) => a - b).slice(0, MOST_HELD);
  const heads = await Promise.all(first.map((id) => rows.head(id)));
  return heads.flatMap((head, at) => {
    const isHeld = head?.held !== undefined && head.held !== STATE_PAUSED && head.lost !== ALONE;
    return isHeld ? [{ actor: String(first[at]), reason: String(head.held) }] : [];
  });
}
