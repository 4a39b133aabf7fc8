import { fieldsOf, type Item } from '../../../engine/dynamodb/index.ts';
import type { Definition } from '../../definition.ts';
import type { QueueStats } from '../../operate/stats.ts';
import type { RemainingWork } from '../../postgres/reader.ts';
import type { QueueRows } from '../database.ts';
import { pausedAt } from '../heads/by-hand.ts';
import { endedIn } from '../heads/ended.ts';
import { isQuiet, type ShardHead } from '../heads/head.ts';
import { JOBS } from '../heads/place.ts';
import { DELAYS, pieceOf, readJobRow } from '../rows.ts';
import type { DynamoQueueStore } from '../store.ts';
import { cancelledIn } from '../work/delays.ts';
import { pieceIn } from '../work/due-rows.ts';

/** How many rows of delays one request reads. */
const PAGE = 100;

/** Counts the jobs of a queue by where they are. */
export class DynamoQueueCounts {
  readonly #store: DynamoQueueStore;
  readonly #rows: QueueRows;
  readonly #definition: Definition;

  constructor(store: DynamoQueueStore, definition: Definition) {
    this.#store = store;
    this.#rows = store.rows;
    this.#definition = definition;
  }

  async stats(): Promise<QueueStats> {
    // Delays are read before the heads, since jobs move from delays to heads. If a job moves meanwhile, both have it, and only its head counts it.
    const delays = await this.#delays();
    const heads = await this.#heads();
    const workers = await this.#store.workers.list();
    const counts = { ready: 0, inProgress: 0, delayed: 0, error: 0, cancelled: 0, completePerMinute: 0 };
    const at = this.#rows.engine.now();
    let pause: number | undefined;
    for (const [shard, head] of heads.entries()) {
      for (const { spans } of head.claims) for (const { n } of spans) counts.inProgress += n;
      for (const { spans } of head.back) {
        for (const { n, dueAt } of spans) {
          if (dueAt > at) counts.delayed += n;
          else counts.ready += n;
        }
      }
      counts.ready += await this.#lineOf(shard, head);
      const moved = movedTo(head);
      for (const item of delays[shard] ?? []) {
        if (!moved.has(pieceIn(item))) counts.delayed += Number(fieldsOf(item)['n'] ?? 0) - cancelledIn(item).length;
      }
      const ended = endedIn(head.fields, at);
      counts.error += ended.error;
      counts.cancelled += ended.cancelled;
      counts.completePerMinute += ended.complete;
      pause = pausedAt(head) ?? pause;
    }
    return {
      ...counts,
      new: counts.ready + counts.delayed,
      'in-progress': counts.inProgress,
      parked: 0,
      oldestReadyMs: null,
      paused: pause !== undefined,
      pausedAt: pause === undefined ? null : new Date(pause),
      pausedParts: [],
      blockedKeys: 0,
      workers: workers.length,
      slots: workers.reduce((sum, { slots }) => sum + slots, 0),
    };
  }

  /** The work that is left, at two read units for each shard, and one more for a line that may have jobs. */
  async left(): Promise<RemainingWork> {
    const left = { ready: false, parked: false, running: false, delayed: false };
    const at = this.#rows.engine.now();
    // Delays are read before the heads, since jobs move from delays to heads. So a job that becomes due meanwhile is found.
    left.delayed = await this.#isAnyDelayed();
    for (const [shard, head] of (await this.#heads()).entries()) {
      left.running ||= head.claims.length > 0;
      for (const { spans } of head.back) {
        left.ready ||= spans.some(({ dueAt }) => dueAt <= at);
        left.delayed ||= spans.some(({ dueAt }) => dueAt > at);
      }
      left.ready ||= !isQuiet({ ...head, back: [], claims: [] }) && (await this.#lineOf(shard, head)) > 0;
    }
    return left;
  }

  async #isAnyDelayed(): Promise<boolean> {
    const shards = Array.from({ length: this.#definition.shards }, (_, shard) => this.#rows.shard(shard));
    const found = await Promise.all(shards.map((pk) => this.#isAnyIn(pk)));
    return found.includes(true);
  }

  /** Whether a shard has a delayed job. A row whose jobs were all taken out stays until its time, and does not count. */
  async #isAnyIn(pk: string): Promise<boolean> {
    for (let from: string = DELAYS.first; ; ) {
      const { items, isWhole } = await this.#rows.page(pk, from, DELAYS.last, PAGE);
      if (items.some((item) => cancelledIn(item).length < Number(fieldsOf(item)['n'] ?? 1))) return true;
      const last = items.at(-1)?.['sk'];
      if (isWhole || last === undefined || !('S' in last)) return false;
      from = `${last.S}~`;
    }
  }

  #delays(): Promise<(readonly Item[])[]> {
    const shards = Array.from({ length: this.#definition.shards }, (_, shard) => this.#rows.shard(shard));
    return Promise.all(shards.map((pk) => this.#rows.range(pk, DELAYS.first, DELAYS.last, 1000)));
  }

  #heads(): Promise<ShardHead[]> {
    return Promise.all(Array.from({ length: this.#definition.shards }, (_, shard) => this.#rows.head(shard)));
  }

  /** How many jobs are in the line, by one page of each band. */
  async #lineOf(shard: number, head: ShardHead): Promise<number> {
    const pk = this.#rows.shard(shard);
    let jobs = 0;
    for (const [band, next] of head.next.entries()) {
      const first = band * 2 ** 37 + Math.floor(next / JOBS);
      const last = band * 2 ** 37 + (head.last[band] ?? 0);
      if (last < first) continue;
      const items = await this.#rows.range(pk, pieceOf(pk, first).sk, pieceOf(pk, last).sk, 1000);
      for (const row of items.map(readJobRow)) {
        if (row.dueAt > 0) continue;
        jobs += row.piece === first ? Math.max(0, row.n - (next % JOBS)) : row.n;
        jobs -= head.cancelled.filter(({ piece }) => piece === row.piece).reduce((sum, { n }) => sum + n, 0);
      }
    }
    return jobs;
  }
}

/** The pieces that have jobs in claims of the head, or among the jobs that were given back. */
function movedTo({ claims, back }: ShardHead): Set<number> {
  return new Set([...claims, ...back].flatMap(({ spans }) => spans.map(({ piece }) => piece)));
}
