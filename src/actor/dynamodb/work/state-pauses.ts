import { Throttled } from '../../../base/errors.ts';
import { sleep } from '../../../base/time/clock.ts';
import { fieldsOf, type Item, written } from '../../../engine/dynamodb/index.ts';
import { type ActorRows, freshName, lineFor, wakeWrite } from '../database.ts';
import { type ActorHead, ALONE, F } from '../heads/head.ts';
import { heldByPause, holdName, letGo } from '../heads/pause.ts';
import { STATE_PAUSED } from '../heads/wake.ts';
import { HELD, headOf, pausedKey, pausedOf, sortKey } from '../rows.ts';
import type { TypeRow, Types } from '../types.ts';

const MOST_TRIES = 20;

/** Takes due actors in a paused state out of their line. `heads/pause.ts` says how, and why no actor is held by a pause that is over. */
export class StatePauses {
  readonly #rows: ActorRows;
  readonly #types: Types;

  constructor(rows: ActorRows, types: Types) {
    this.#rows = rows;
    this.#types = types;
  }

  /** Holds an actor. @returns whether it is held, so that the wake rows by which it was found are over */
  async hold(actor: number, head: ActorHead, type: TypeRow): Promise<boolean> {
    await this.#rows.put(pausedOf(type.id, actor, holdName(head)), { s: head.state });
    if (!(await this.#types.isPausedNow(type, head.state))) return false;
    const { isDone, fields } = await this.#rows.change(headOf(actor), heldByPause(head));
    return isDone || fields[F.held] === STATE_PAUSED;
  }

  /** Makes all actors due that the pause of a state has held. The type must say already that the pause is over. */
  async release(type: TypeRow, state: string): Promise<void> {
    for (let tries = 1; tries <= MOST_TRIES; tries += 1) {
      const items = await this.#rows.all(pausedKey(type.id), HELD.first, HELD.last);
      const mine = items.filter((item) => fieldsOf(item)['s'] === state);
      const done = await Promise.all(mine.map((item) => this.#releaseOne(type, item)));
      if (done.every(Boolean)) return;
      await sleep(Math.random() * 5 * tries);
    }
    throw new Throttled(`actors of "${type.name}" change each time the pause of "${state}" is to end; resume it again`);
  }

  /** @returns whether the row was removed */
  async #releaseOne(type: TypeRow, item: Item): Promise<boolean> {
    const [, id = '0', name = ''] = sortKey(item).split('#');
    const actor = Number(id);
    const head = await this.#rows.head(actor);
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const look = letGo(head, now);
    if (look.kind !== 'drop' && head !== undefined) {
      const line = lineFor(type.id, actor, type.shards, head.lost === ALONE);
      const row = { at: now, actor, kind: 'time', epoch: head.epoch, name: freshName() } as const;
      const change = { key: headOf(actor), written: written(look.change) };
      if (!(await this.#rows.together(look.kind === 'wake' ? [change, wakeWrite(line, row)] : [change]))) return false;
    }
    await this.#rows.drop(pausedOf(type.id, actor, name));
    return true;
  }
}
