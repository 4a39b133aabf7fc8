import { sleep } from '../../../base/time/clock.ts';
import { creation, fieldsOf, type Item, written } from '../../../engine/dynamodb/index.ts';
import type { TurnToken, WorkerRow } from '../../store.ts';
import { type ActorRows, lineFor, wakeWrite } from '../database.ts';
import { type ActorHead, F } from '../heads/head.ts';
import { heldUnknown, lookedUnknown } from '../heads/unknown.ts';
import { P } from '../pages/page-row.ts';
import type { Pages } from '../pages/pages.ts';
import { HELD, headOf, heldKey, heldOf, OPEN_PAGES, PAGES, sortKey, transitionOf, WORKERS } from '../rows.ts';
import type { Types } from '../types.ts';

/** By type: its states, and under `$version` the version of its fields. */
type Knows = WorkerRow['knows'];

const MOST_WORKERS = 1000;
const MOST_TRIES = 20;

/** Holds actors that no running program can run. `heads/unknown.ts` says how, and why no actor stays held whose state a program knows. */
export class Holding {
  readonly #rows: ActorRows;
  readonly #types: Types;
  readonly #pages: Pages;
  /** The types that workers of this process know, as long as they have to read rows again, since a hold is under way. */
  readonly #waiting = new Set<Knows>();

  constructor(rows: ActorRows, types: Types, pages: Pages) {
    this.#rows = rows;
    this.#types = types;
    this.#pages = pages;
  }

  /**
   * Holds an actor whose turn is this worker's, and opens a page, unless another worker knows the state.
   * @returns `known`: another worker knows the state; `lost`: the turn is no longer this worker's
   */
  async hold(token: TurnToken, type: number, state: string, version: number, reason: string): Promise<HoldOutcome> {
    const { actor, epoch, worker } = token;
    const named = { e: epoch, s: state, v: version };
    await this.#rows.put(heldOf(type, actor, epoch), named);
    if (await this.#isKnown(worker, type, state, version)) {
      await this.#rows.dropIf(heldOf(type, actor, epoch), named);
      return 'known';
    }
    for (let tries = 1; tries <= MOST_TRIES; tries += 1) {
      const head = await this.#rows.head(actor);
      // An earlier try was carried out.
      if (head?.epoch === epoch && head.held === reason) return 'held';
      if (head?.epoch !== epoch || head.worker !== worker) return 'lost';
      if (await this.#write(token, head, { type, state, reason })) {
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
    token: TurnToken,
    head: ActorHead,
    { type, state, reason }: { readonly type: number; readonly state: string; readonly reason: string },
  ): Promise<boolean> {
    const { actor, epoch } = token;
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const tag = unknownTag(type, state);
    const page = { tag, severity: 3, summary: reason, details: null, root: undefined, actor: String(actor) };
    const { parts } = await this.#pages.opening(page);
    const { expect, set } = heldUnknown(head, token, now, reason);
    const tags = JSON.stringify([...new Set([...pagesOf(head.fields), tag])]);
    const { historyMs } = await this.#types.withId(type);
    const told = { t: now, o: state, s: state, r: 'held', a: 0, e: reason };
    return this.#rows.together([
      { key: headOf(actor), written: written({ expect, set: { ...set, [F.pages]: tags } }) },
      { key: transitionOf(actor, epoch), written: creation(told, historyMs === null ? undefined : now + historyMs) },
      ...parts,
    ]);
  }

  /** Lets go the held actors whose state this worker knows. The worker must be listed already. One query for each type. */
  async release(knows: Knows): Promise<void> {
    this.#waiting.delete(knows);
    for (const [id, known] of Object.entries(knows)) {
      const type = Number(id);
      let isLeft = false;
      for (const item of await this.#rows.all(heldKey(type), HELD.first, HELD.last)) {
        const fields = fieldsOf(item);
        const isKnown = known[String(fields['s'])] !== undefined && (known['$version'] ?? 0) >= Number(fields['v']);
        if (isKnown && !(await this.#letGo(type, item))) isLeft = true;
      }
      if (isLeft) this.#waiting.add(knows);
      else await this.#resolvePages(type, known);
    }
  }

  /** Reads again the rows of holds that were under way. */
  async releaseLeft(): Promise<void> {
    const waiting = Array.from(this.#waiting);
    for (const knows of waiting) await this.release(knows);
  }

  /** @returns whether the row was removed: the actor is not held at that epoch any more */
  async #letGo(type: number, item: Item): Promise<boolean> {
    const [, id, epoch] = sortKey(item).split('#').map(Number);
    const actor = id ?? 0;
    const head = await this.#rows.head(actor);
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const look = lookedUnknown(head, epoch ?? 0, now);
    if (look.kind === 'leave') return false;
    if (look.kind === 'wake') {
      const { shards } = await this.#types.withId(type);
      const row = { at: now, actor, kind: 'time', epoch: epoch ?? 0, name: `held${epoch}` } as const;
      const isDone = await this.#rows.together([
        { key: headOf(actor), written: written(look.change) },
        wakeWrite(lineFor(type, actor, shards), row),
      ]);
      if (!isDone) return false;
    }
    await this.#rows.drop(heldOf(type, actor, epoch ?? 0));
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

export function unknownTag(type: number, state: string): string {
  return `actor-unknown:${type}:${state}`;
}

/** Tags of pages about an actor that were opened, and may still be open. */
export function pagesOf(fields: Readonly<Record<string, string | number>>): readonly string[] {
  return JSON.parse(String(fields[F.pages] ?? '[]'));
}
