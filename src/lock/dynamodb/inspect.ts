import { type CallLimits, type DynamoEngine, readText } from '../../engine/dynamodb/index.ts';
import { cyclesOf } from '../graph.ts';
import { type Explanation, type Holder, type PastHolder, SHARED, type Snapshot, type Waiter } from '../store.ts';
import type { DeadlockDetector } from './deadlock.ts';
import type { Head, HeadHolder, HeadPast } from './head.ts';
import type { Heads } from './heads.ts';
import { readHead } from './items/head.ts';
import { HEAD, lockKey, nameIn, spacePrefix } from './items/key.ts';
import { readWaiter, type WaiterRow } from './items/waiter.ts';
import type { WaiterQueue } from './waiting/waiter-queue.ts';

const LIMITS: CallLimits = { timeoutMs: 10_000 };
const MOST_WAITERS = 1000;
const MOST_NAMES = 100;

/** Answers the questions of people: the holders, the waiters and the past holders of locks. */
export class LockInspector {
  readonly #engine: DynamoEngine;
  readonly #heads: Heads;
  readonly #queue: WaiterQueue;
  readonly #deadlocks: DeadlockDetector;

  constructor(engine: DynamoEngine, heads: Heads, queue: WaiterQueue, deadlocks: DeadlockDetector) {
    this.#engine = engine;
    this.#heads = heads;
    this.#queue = queue;
    this.#deadlocks = deadlocks;
  }

  /** Reads the whole table, since an index by namespace would cost a write with every acquire and release. */
  async snapshot(space: string): Promise<Snapshot> {
    const heads = new Map<string, Head>();
    const rows: { pk: string; row: WaiterRow }[] = [];
    for await (const item of this.#engine.scan(spacePrefix(space), LIMITS)) {
      const pk = readText(item, 'pk') ?? '';
      if (readText(item, 'sk') === HEAD) heads.set(pk, readHead(item));
      const row = readWaiter(item);
      if (row !== undefined) rows.push({ pk, row });
    }
    const now = this.#engine.now();
    const waiting = rows.filter(({ pk, row }) => !row.isGone && row.ticket >= (heads.get(pk)?.next ?? 0));
    return {
      held: [...heads].flatMap(([pk, head]) => head.holders.map((each) => toHolder(nameIn(pk, space), each, now))),
      waiting: waiting
        .map(({ pk, row }) => toWaiter(nameIn(pk, space), row, now))
        .sort((a, b) => (a.name === b.name ? Number(a.ticket - b.ticket) : a.name < b.name ? -1 : 1)),
    };
  }

  async explain(space: string, name: string): Promise<Explanation> {
    const pk = lockKey(space, name);
    const head = await this.#heads.read(pk, LIMITS);
    const to = Math.min(head.last, head.next + MOST_WAITERS);
    const waiters = await this.#queue.waiters(pk, head.next, to, LIMITS);
    const now = this.#engine.now();
    const { lines, edges } = await this.#chain(space, name);
    return {
      name,
      holders: head.holders.map((each) => toHolder(name, each, now)),
      waiters: waiters.map((each) => toWaiter(name, each, now)),
      guardedBy: [],
      blocking: lines,
      backends: [],
      cycles: cyclesOf(edges),
    };
  }

  /** The last few holders of each name, newest first. For all names, it reads the whole table. */
  async history(space: string, name: string | undefined, limit: number): Promise<readonly PastHolder[]> {
    const found: PastHolder[] = [];
    const add = (of: string, { past }: Head): void => void found.push(...past.map((each) => toPastHolder(of, each)));
    if (name !== undefined) add(name, await this.#heads.read(lockKey(space, name), LIMITS));
    else {
      for await (const item of this.#engine.scan(spacePrefix(space), LIMITS)) {
        if (readText(item, 'sk') === HEAD) add(nameIn(readText(item, 'pk') ?? '', space), readHead(item));
      }
      found.sort((a, b) => b.endedAt.getTime() - a.endedAt.getTime());
    }
    return found.slice(0, limit);
  }

  /** The locks for which the holders of a name wait, the locks for which their holders wait, and so on: why the name is not released. */
  async #chain(space: string, name: string): Promise<{ lines: string[]; edges: Map<string, string[]> }> {
    const lines: string[] = [];
    const edges = new Map<string, string[]>();
    const names = [name];
    for (const each of names) {
      if (edges.has(each) || edges.size > MOST_NAMES) continue;
      const wanted: string[] = [];
      edges.set(each, wanted);
      for (const { host, pid, waitsFor } of (await this.#heads.read(lockKey(space, each), LIMITS)).holders) {
        if (waitsFor === undefined || !(await this.#deadlocks.isCurrent(waitsFor, LIMITS))) continue;
        for (const { pk } of waitsFor.places) {
          if (!pk.startsWith(spacePrefix(space))) continue;
          const next = nameIn(pk, space);
          lines.push(`"${each}" is held by ${host} (pid ${pid}), which waits for "${next}"`);
          wanted.push(next);
        }
      }
      names.push(...wanted);
    }
    return { lines, edges };
  }
}

type Mode = Pick<Holder, 'mode' | 'permits'>;

function modeOf(capacity: number): Mode {
  if (capacity === 1) return { mode: 'exclusive', permits: null };
  return capacity === SHARED ? { mode: 'shared', permits: null } : { mode: 'permit', permits: capacity };
}

function toHolder(name: string, holder: HeadHolder, now: number): Holder {
  const { capacity, token, host, pid, grantedAt, beatAt, leaseMs } = holder;
  const isLeased = leaseMs !== Infinity;
  return {
    name,
    ...modeOf(capacity),
    token,
    host,
    pid,
    job: null,
    since: new Date(grantedAt),
    expiresAt: isLeased ? new Date(beatAt + leaseMs) : null,
    leaseLeftMs: isLeased ? Math.max(0, beatAt + leaseMs - now) : null,
    lastHeartbeatAt: isLeased ? new Date(beatAt) : null,
  };
}

function toWaiter(name: string, { capacity, ticket, host, pid, since }: WaiterRow, now: number): Waiter {
  const waitedMs = Math.max(0, now - since);
  return {
    name,
    ...modeOf(capacity),
    ticket: BigInt(ticket),
    host,
    pid,
    job: null,
    since: new Date(since),
    waitedMs,
  };
}

/** A past holder as the public API shows it. */
export function toPastHolder(name: string, past: HeadPast): PastHolder {
  const { token, capacity, host, pid, grantedAt, endedAt, outcome, reason } = past;
  return {
    name,
    ...modeOf(capacity),
    token,
    host,
    pid,
    job: null,
    grantedAt: new Date(grantedAt),
    endedAt: new Date(endedAt),
    outcome,
    reason: reason ?? null,
  };
}
