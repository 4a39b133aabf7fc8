import { randomInt } from 'node:crypto';
import type { RecallResult } from '../../../base/handoff/handoff.ts';
import { Expression, type Liveness, num, workerOf, written } from '../../../engine/dynamodb/index.ts';
import type { WorkerRow } from '../../store.ts';
import { type ActorRows, lineFor, wakeWrite } from '../database.ts';
import { ALONE, F } from '../heads/head.ts';
import { headOf, WORKERS } from '../rows.ts';
import type { Types } from '../types.ts';
import type { Holding } from './holding.ts';
import type { Notes } from './notes.ts';

/** The workers of this process: their rows, and the actors that they give back. */
export class Workers {
  readonly #rows: ActorRows;
  readonly #types: Types;
  readonly #notes: Notes;
  readonly #liveness: Liveness;
  readonly #holding: Holding;

  constructor(rows: ActorRows, types: Types, notes: Notes, liveness: Liveness, holding: Holding) {
    this.#rows = rows;
    this.#types = types;
    this.#notes = notes;
    this.#liveness = liveness;
    this.#holding = holding;
  }

  /** Adds the row of a worker. Its id is random, so no worker is taken for another one. */
  async add({ host, pid, concurrency, leaseMs, types, knows }: WorkerRow): Promise<number> {
    const worker = randomInt(1, 2 ** 47);
    const known = types.length === 0 ? {} : { k: JSON.stringify(knows) };
    const fields = { b: 0, l: leaseMs, h: host, i: pid, c: concurrency, y: JSON.stringify(types), ...known };
    const startedAt = await this.#rows.engine.serviceTime(this.#rows.limits);
    await this.#rows.put(workerOf(WORKERS, worker), { ...fields, t: startedAt });
    this.#liveness.note(worker, true);
    // Only after it is listed, since a worker that holds an actor first searches for workers that know the state.
    if (types.length > 0) await this.#holding.release(knows);
    return worker;
  }

  /** A heartbeat changes the row, on condition that the row exists. So a worker learns that it was declared dead. */
  async beat(workers: readonly number[]): Promise<number[]> {
    const alive: number[] = [];
    const { engine, limits } = this.#rows;
    for (const worker of workers) {
      const time = await engine.serviceTime(limits);
      const beat = new Expression().set('b', num(time)).when('attribute_exists(pk)').write();
      const { isDone } = await engine.update(workerOf(WORKERS, worker), beat, 'NONE', limits);
      this.#liveness.note(worker, isDone);
      if (isDone) alive.push(worker);
    }
    return alive;
  }

  /** Removes the row of a worker. Its notes stay while they name an actor that it has, so that the rescue finds the actor. */
  async end(worker: number): Promise<void> {
    await this.#rows.drop(workerOf(WORKERS, worker));
    this.#liveness.note(worker, false);
  }

  /** Gives back the actors that the worker holds and does not know. @param known  epochs by actor */
  async recall(worker: number, known: ReadonlyMap<number, number>): Promise<RecallResult> {
    let lost = 0;
    for (const note of await this.#notes.read(worker)) {
      for (const [actor, epoch] of note.actors) {
        const head = await this.#rows.head(actor);
        if (head === undefined || head.worker !== worker || head.epoch !== epoch + 1) continue;
        if (known.get(actor) === head.epoch) continue;
        await this.#giveBack(actor, worker);
        lost += 1;
      }
    }
    return { lost, offers: [] };
  }

  /** Gives an actor back without charging an attempt, since its turn has not begun. */
  async #giveBack(actor: number, worker: number): Promise<void> {
    const head = await this.#rows.head(actor);
    if (head === undefined || head.worker !== worker) return;
    const { type: id, epoch, attempt, lost } = head;
    const type = await this.#types.withId(id);
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const set = { [F.epoch]: epoch + 1, [F.worker]: null, [F.wakeAt]: now, [F.attempt]: Math.max(attempt - 1, 0) };
    const change = { expect: { [F.epoch]: epoch, [F.worker]: worker }, set };
    const row = { at: now, actor, kind: 'time', epoch: epoch + 1, name: String(epoch + 1) } as const;
    await this.#rows.together([
      { key: headOf(actor), written: written(change) },
      wakeWrite(lineFor(id, actor, type.shards, lost === ALONE), row),
    ]);
  }
}
