import { sleep } from '../../../base/time/clock.ts';
import { creation, type Fields, fieldsOf, written } from '../../../engine/dynamodb/index.ts';
import type { TurnToken, WorkerRow } from '../../store.ts';
import { type ActorRows, lineFor, wakeWrite } from '../database.ts';
import { type ActorHead, ALONE, F, unchanged } from '../heads/head.ts';
import { STATE_PAUSED } from '../heads/wake.ts';
import { P } from '../pages/page-row.ts';
import type { Pages } from '../pages/pages.ts';
import { HELD, headOf, heldOf, OPEN_PAGES, PAGES, sortKey, transitionOf, WORKERS } from '../rows.ts';
import type { Types } from '../types.ts';

/** By type: its states, and under `$version` that of its fields. */
type Knows = WorkerRow['knows'];

const MOST_WORKERS = 1000;
const MOST_TRIES = 20;

/**
 * Actors that no running program can run. Who holds one names it in a row, and then reads which workers there are; a worker lists itself,
 * and then reads these rows. So either the holder sees the worker that knows the state, or that worker sees the row.
 */
export class Holding {
  readonly #rows: ActorRows;
  readonly #types: Types;
  readonly #pages: Pages;
  /** What the workers of this process know, as long as a hold is under way that they have to look at again. */
  readonly #waiting = new Set<Knows>();

  constructor(rows: ActorRows, types: Types, pages: Pages) {
    this.#rows = rows;
    this.#types = types;
    this.#pages = pages;
  }

  /**
   * Holds an actor whose turn is this worker's, and opens a page, unless another worker knows the state.
   * @returns `known`: another one does; `lost`: the turn is somebody else's by now
   */
  async hold(token: TurnToken, type: number, state: string, version: number, reason: string): Promise<HoldOutcome> {
    const { actor, epoch, worker } = token;
    const named = { e: epoch, s: state, v: version };
    await this.#rows.put(heldOf(type, actor), named);
    if (await this.#isKnown(worker, type, state, version)) {
      await this.#rows.dropIf(heldOf(type, actor), named);
      return 'known';
    }
    for (let tries = 1; tries <= MOST_TRIES; tries += 1) {
      const head = await this.#rows.head(actor);
      // An earlier try has come through.
      if (head?.epoch === epoch && head.held === reason) return 'held';
      if (head?.epoch !== epoch || head.worker !== worker) return 'lost';
      if (await this.#write(token, head.attempt, pagesOf(head.fields), { type, state, reason })) {
        this.#pages.noteNotices();
        return 'held';
      }
      await sleep(Math.random() * 5 * tries);
    }
    return 'known';
  }

  async #isKnown(worker: number, type: number, state: string, version: number): Promise<boolean> {
    const items = await this.#rows.range(WORKERS, 'w#', 'w#~', MOST_WORKERS);
    return items.some((item) => {
      if (Number(sortKey(item).slice(2)) === worker) return false;
      const knows: Knows = JSON.parse(String(fieldsOf(item)['k'] ?? '{}'));
      const known = knows[String(type)];
      return known?.[state] !== undefined && (known['$version'] ?? 0) >= version;
    });
  }

  async #write(
    { actor, epoch, worker }: TurnToken,
    attempt: number,
    tags: readonly string[],
    { type, state, reason }: { readonly type: number; readonly state: string; readonly reason: string },
  ): Promise<boolean> {
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const tag = unknownTag(type, state);
    const page = { tag, severity: 3, summary: reason, details: null, root: undefined, actor: String(actor) };
    const { parts } = await this.#pages.opening(page);
    const set = {
      [F.worker]: null,
      [F.signal]: null,
      [F.lost]: null,
      [F.attempt]: Math.max(attempt - 1, 0),
      [F.wakeAt]: now,
      [F.held]: reason,
      [F.error]: reason,
      [F.pages]: JSON.stringify([...new Set([...tags, tag])]),
    };
    const { historyMs } = await this.#types.withId(type);
    const told = { t: now, o: state, s: state, r: 'held', a: 0, e: reason };
    return this.#rows.together([
      { key: headOf(actor), written: written({ expect: { [F.epoch]: epoch, [F.worker]: worker }, set }) },
      { key: transitionOf(actor, epoch), written: creation(told, historyMs === null ? undefined : now + historyMs) },
      ...parts,
    ]);
  }

  /** Lets go the actors that are held since no program knew what this worker knows, which is listed by now. One query for each type. */
  async release(knows: Knows): Promise<void> {
    this.#waiting.delete(knows);
    for (const [id, known] of Object.entries(knows)) {
      const type = Number(id);
      let isLeft = false;
      for (const item of await this.#rows.all(heldOf(type, 0).pk, HELD.first, HELD.last)) {
        const fields = fieldsOf(item);
        const isKnown = known[String(fields['s'])] !== undefined && (known['$version'] ?? 0) >= Number(fields['v']);
        if (isKnown && !(await this.#letGo(type, Number(sortKey(item).slice(2)), fields))) isLeft = true;
      }
      if (isLeft) this.#waiting.add(knows);
      else await this.#resolvePages(type, known);
    }
  }

  /** Looks again at what was being held. */
  async releaseLeft(): Promise<void> {
    const waiting = Array.from(this.#waiting);
    for (const knows of waiting) await this.release(knows);
  }

  /**
   * What is done depends on the head alone: a late request may have written the row of another turn over this one.
   * @returns whether its row is over: it is not held any more
   */
  async #letGo(type: number, actor: number, seen: Fields): Promise<boolean> {
    const head = await this.#rows.head(actor);
    // Its turn may be about to hold it.
    if (head !== undefined && head.worker !== 0) return false;
    if (head !== undefined && isUnknown(head)) {
      const now = await this.#rows.engine.serviceTime(this.#rows.limits);
      const change = { expect: unchanged(head, [F.epoch, F.held]), set: { [F.held]: null, [F.wakeAt]: now } };
      const { shards } = await this.#types.withId(type);
      const row = { at: now, actor, kind: 'time', epoch: head.epoch, name: `held${head.epoch}` } as const;
      const isDone = await this.#rows.together([
        { key: headOf(actor), written: written(change) },
        wakeWrite(lineFor(type, actor, shards), row),
      ]);
      if (!isDone) return false;
    }
    await this.#rows.dropIf(heldOf(type, actor), seen);
    return true;
  }

  async #resolvePages(type: number, known: Readonly<Record<string, number>>): Promise<void> {
    const prefix = `${OPEN_PAGES.first}${unknownTag(type, '')}`;
    for (const item of await this.#rows.range(PAGES, prefix, `${prefix}\u{10ffff}`, MOST_WORKERS)) {
      const tag = String(fieldsOf(item)[P.tag]);
      if (known[tag.slice(unknownTag(type, '').length)] !== undefined) await this.#pages.resolve(tag);
    }
  }
}

export type HoldOutcome = 'held' | 'known' | 'lost';

/** It is held since no program knew its state. */
function isUnknown({ held, lost }: ActorHead): boolean {
  return held !== undefined && held !== STATE_PAUSED && lost < ALONE;
}

export function unknownTag(type: number, state: string): string {
  return `actor-unknown:${type}:${state}`;
}

/** Tags of pages that were opened about an actor, and may still be. */
export function pagesOf(fields: Readonly<Record<string, string | number>>): readonly string[] {
  return JSON.parse(String(fields[F.pages] ?? '[]'));
}
