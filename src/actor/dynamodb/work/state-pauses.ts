import { Throttled } from '../../../base/errors.ts';
import { sleep } from '../../../base/time/clock.ts';
import { fieldsOf, type Item, written } from '../../../engine/dynamodb/index.ts';
import { type ActorRows, freshName, lineFor, wakeWrite } from '../database.ts';
import { type ActorHead, ALONE, F } from '../heads/head.ts';
import { STATE_PAUSED } from '../heads/wake.ts';
import { HELD, headOf, pausedOf, sortKey } from '../rows.ts';
import type { TypeRow, Types } from '../types.ts';

const MOST_TRIES = 20;

/**
 * Actors whose state is paused. One that is due is taken out of its line: a row names it, then the type is read once more, then the head is
 * changed. Who ends the pause changes the type, then reads these rows, and gives an actor that is only named another fence. So no actor is
 * held by a pause that is over.
 */
export class StatePauses {
  readonly #rows: ActorRows;
  readonly #types: Types;

  constructor(rows: ActorRows, types: Types) {
    this.#rows = rows;
    this.#types = types;
  }

  /** @returns whether it is held: the rows by which it was found are over */
  async hold(actor: number, head: ActorHead, type: TypeRow): Promise<boolean> {
    const { epoch, fence, state } = head;
    await this.#rows.put(pausedOf(type.id, actor), { e: epoch, n: fence, s: state });
    if (!(await this.#types.isPausedNow(type, state))) return false;
    const names = [F.epoch, F.fence, F.worker, F.held, F.pausedAt];
    const expect = Object.fromEntries(names.map((name) => [name, head.fields[name] ?? null]));
    const { isDone, fields } = await this.#rows.change(headOf(actor), { expect, set: { [F.held]: STATE_PAUSED } });
    return isDone || fields[F.held] === STATE_PAUSED;
  }

  /** The pause is over, and the type says so: all that it holds is due. */
  async release(type: TypeRow, state: string): Promise<void> {
    for (let tries = 1; tries <= MOST_TRIES; tries += 1) {
      const items = await this.#rows.all(pausedOf(type.id, 0).pk, HELD.first, HELD.last);
      const mine = items.filter((item) => fieldsOf(item)['s'] === state);
      const done = await Promise.all(mine.map((item) => this.#releaseOne(type, item)));
      if (done.every(Boolean)) return;
      await sleep(Math.random() * 5 * tries);
    }
    throw new Throttled(`actors of "${type.name}" change each time the pause of "${state}" is to end; resume it again`);
  }

  /** @returns whether its row is over, and gone */
  async #releaseOne(type: TypeRow, item: Item): Promise<boolean> {
    const actor = Number(sortKey(item).slice(2));
    const { e, n } = fieldsOf(item);
    const head = await this.#rows.head(actor);
    const isNamed = head !== undefined && head.epoch === e && !head.isFinal;
    if (isNamed && head.held === STATE_PAUSED && !(await this.#wake(actor, head, type))) return false;
    if (isNamed && head.held === undefined && head.fence === n) {
      const names = [F.epoch, F.fence, F.held];
      const expect = Object.fromEntries(names.map((name) => [name, head.fields[name] ?? null]));
      const { isDone } = await this.#rows.change(headOf(actor), { expect, set: { [F.fence]: head.fence + 1 } });
      if (!isDone) return false;
    }
    await this.#rows.drop(pausedOf(type.id, actor));
    return true;
  }

  async #wake(actor: number, head: ActorHead, type: TypeRow): Promise<boolean> {
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const expect = { [F.epoch]: head.fields[F.epoch] ?? null, [F.held]: STATE_PAUSED };
    const change = { expect, set: { [F.held]: null, [F.signal]: null, [F.wakeAt]: now } };
    const line = lineFor(type.id, actor, type.shards, head.lost === ALONE);
    return this.#rows.together([
      { key: headOf(actor), written: written(change) },
      wakeWrite(line, { at: now, actor, kind: 'time', epoch: head.epoch, name: freshName() }),
    ]);
  }
}
