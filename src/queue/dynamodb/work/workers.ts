import { randomInt } from 'node:crypto';
import { creation, Expression, fieldsOf, type Item, num, text, workerOf } from '../../../engine/dynamodb/index.ts';
import type { WorkerRecord } from '../../operate/stats.ts';
import type { Heartbeat, HeartbeatAnswer, WorkerRow } from '../../store.ts';
import type { QueueRows } from '../database.ts';
import { workersKey } from '../rows.ts';
import type { Household } from './household.ts';

const WISH = 'x:';

/** The rows of the workers of a queue. A worker lives as long as it has a row. */
export class WorkerRows {
  readonly #rows: QueueRows;
  readonly #household: Household;
  /** By worker: wishes to cancel that were passed on. The next heartbeat removes them. */
  readonly #passed = new Map<number, Set<string>>();

  constructor(rows: QueueRows, household: Household) {
    this.#rows = rows;
    this.#household = household;
  }

  /** Adds the row of a worker. Its id is random, so no worker is taken for another one. */
  async add({ host, pid, concurrency, leaseMs }: WorkerRow): Promise<number> {
    const worker = randomInt(1, 2 ** 47);
    const fields = { b: 0, l: leaseMs, h: host, i: pid, c: concurrency, t: this.#rows.engine.now() };
    const { isDone, isRepeated } = await this.#rows.engine.update(
      workerOf(workersKey(this.#rows.queue), worker),
      creation(fields),
      'NONE',
      this.#rows.limits,
    );
    if (!isDone && !isRepeated) return this.add({ host, pid, concurrency, leaseMs, queue: 0, hold: 'lease' });
    this.#household.liveness.note(worker, true);
    return worker;
  }

  /** A heartbeat changes the row, on condition that the row exists. So a worker learns that it was declared dead. */
  async beat(beats: readonly Heartbeat[]): Promise<HeartbeatAnswer> {
    const alive: number[] = [];
    const cancel: { worker: number; id: number; reason: string | null }[] = [];
    for (const { worker } of beats) {
      const request = new Expression().set('b', num(Math.floor(this.#rows.engine.now()))).when('attribute_exists(pk)');
      const passed = this.#passed.get(worker) ?? new Set<string>();
      for (const wish of passed) request.remove(wish);
      const key = workerOf(workersKey(this.#rows.queue), worker);
      const { isDone, item } = await this.#rows.engine.update(key, request.write(), 'ALL_NEW', this.#rows.limits);
      this.#household.liveness.note(worker, isDone);
      if (!isDone) continue;
      alive.push(worker);
      const wishes = Object.entries(fieldsOf(item)).filter(([name]) => name.startsWith(WISH));
      this.#passed.set(worker, new Set(wishes.map(([name]) => name)));
      for (const [name, reason] of wishes) {
        cancel.push({ worker, id: Number(name.slice(WISH.length)), reason: reason === '' ? null : String(reason) });
      }
    }
    return { alive, cancel, wary: [] };
  }

  /** Asks a worker to cancel a running job. @returns false if the worker has no row any more */
  async wishToCancel(worker: number, job: number, reason: string | null): Promise<boolean> {
    const request = new Expression()
      .set(`${WISH}${job}`, text(reason ?? ''))
      .when('attribute_exists(pk)')
      .write();
    const { isDone } = await this.#rows.engine.update(
      workerOf(workersKey(this.#rows.queue), worker),
      request,
      'NONE',
      this.#rows.limits,
    );
    if (isDone) this.#household.checkCancels();
    return isDone;
  }

  async remove(worker: number): Promise<void> {
    this.#household.liveness.note(worker, false);
    await this.#rows.engine.remove(workerOf(workersKey(this.#rows.queue), worker), {}, this.#rows.limits);
  }

  async list(): Promise<
    readonly { readonly id: number; readonly host: string; readonly pid: number; readonly slots: number }[]
  > {
    const items = await this.#rows.range(workersKey(this.#rows.queue), 'w#', 'w#~', 1000);
    return items.map((item) => {
      const fields = fieldsOf(item);
      return {
        id: idIn(item),
        host: String(fields['h'] ?? ''),
        pid: Number(fields['i'] ?? 0),
        slots: Number(fields['c'] ?? 0),
      };
    });
  }

  /** The workers, for people. Only live workers have rows. */
  async records(): Promise<WorkerRecord[]> {
    const items = await this.#rows.range(workersKey(this.#rows.queue), 'w#', 'w#~', 1000);
    return items.map((item) => {
      const fields = fieldsOf(item);
      return {
        id: `${this.#rows.queue}:${idIn(item)}`,
        queue: this.#rows.queue,
        host: String(fields['h'] ?? ''),
        pid: Number(fields['i'] ?? 0),
        hold: 'lease' as const,
        concurrency: Number(fields['c'] ?? 0),
        inProgress: 0,
        startedAt: new Date(Number(fields['t'] ?? 0)),
        beatAt: new Date(Number(fields['b'] ?? 0) || Number(fields['t'] ?? 0)),
        isLive: true,
      };
    });
  }
}

function idIn({ sk }: Item): number {
  return Number(sk !== undefined && 'S' in sk ? sk.S.slice(2) : 0);
}
