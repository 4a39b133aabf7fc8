import { NotFound, Throttled } from '../../../base/errors.ts';
import { sleep } from '../../../base/time/clock.ts';
import {
  creation,
  type Fields,
  fieldsOf,
  type PartialCondition,
  type PartialWrite,
  written,
} from '../../../engine/dynamodb/index.ts';
import type { PageRequest } from '../../pages/page.ts';
import type { PageFilter } from '../../postgres/reader.ts';
import type { PageRecord } from '../../record.ts';
import { type ActorRows, freshName } from '../database.ts';
import { ACTORS, noticeOf, OPEN_PAGES, openPageOf, PAGES, pageOf, RESOLVED_PAGES } from '../rows.ts';
import { isKnown, openedPage, P, recordOf, repeatedPage, seen } from './page-row.ts';

const KEPT_MS = 14 * 86_400_000;
const MOST_TRIES = 20;

type News = 'opened' | 'escalated' | 'none';

/** The writes of a page, alone or with other rows of a turn. They are refused together if the page has changed meanwhile. */
export interface PageParts {
  readonly id: number;
  readonly news: News;
  readonly parts: readonly PartialWrite[];
}

/** A write or a removal. */
type Part = PartialWrite | PartialCondition;

/** Pages. The open page of a tag has the row of the tag. A resolved page has a row by its id. All are in one partition, since pages are rare. */
export class Pages {
  readonly #rows: ActorRows;
  readonly #listeners = new Set<() => void>();

  constructor(rows: ActorRows) {
    this.#rows = rows;
  }

  /** @param listener  called when this process has written a notification */
  onNotice(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  noteNotices(): void {
    for (const listener of this.#listeners) listener();
  }

  async open(page: PageRequest): Promise<{ id: string; news: News }> {
    for (let tries = 1; tries <= MOST_TRIES; tries += 1) {
      const { id, news, parts } = await this.opening(page);
      if (await this.#rows.together(parts)) {
        this.noteNotices();
        return { id: String(id), news };
      }
      await sleep(Math.random() * 5 * tries);
    }
    throw new Throttled(`the page "${page.tag}" changes too often; try again`);
  }

  /** The writes that open a page, or count it again if it is open. */
  async opening(page: PageRequest): Promise<PageParts> {
    const now = await this.#now();
    const open = fieldsOf(await this.#rows.get(openPageOf(page.tag)));
    if (open[P.id] === undefined) {
      const id = await this.#rows.count({ pk: ACTORS, sk: 'pages' });
      const suppressed = openedPage(id, page, now, true);
      const known = await this.#isKnown(suppressed, now);
      const row = known ? suppressed : openedPage(id, page, now, false);
      const notices = known ? [] : [noticeWrite(row, 'opened', now)];
      return { id, news: 'opened', parts: [{ key: openPageOf(page.tag), written: creation(row) }, ...notices] };
    }
    const isHigher = page.severity > Number(open[P.severity]);
    const wasNotified = open[P.notifiedAt] !== undefined;
    const raised = isHigher ? { ...open, [P.severity]: page.severity } : open;
    const isNotified = isHigher && (wasNotified || !(await this.#isKnown(raised, now)));
    const change = repeatedPage(open, page, now, isNotified);
    const notices = isNotified ? [noticeWrite(raised, wasNotified ? 'escalated' : 'opened', now)] : [];
    return {
      id: Number(open[P.id]),
      news: isHigher ? 'escalated' : 'none',
      parts: [{ key: openPageOf(page.tag), written: written(change) }, ...notices],
    };
  }

  /** Resolves a page. Notifies pages that it has suppressed, the worst first, which may then suppress the others. @returns whether it was open */
  async resolve(tag: string): Promise<boolean> {
    for (let tries = 1; tries <= MOST_TRIES; tries += 1) {
      const { parts, page } = await this.resolving(tag);
      if (page === undefined) return false;
      if (await this.#rows.together(parts)) {
        await this.notifyHidden(page);
        return true;
      }
      await sleep(Math.random() * 5 * tries);
    }
    throw new Throttled(`the page "${tag}" changes too often; try again`);
  }

  /** The writes that resolve the page with this tag. @returns `page`: undefined if none is open */
  async resolving(tag: string): Promise<{ readonly parts: readonly Part[]; readonly page: Fields | undefined }> {
    const open = fieldsOf(await this.#rows.get(openPageOf(tag)));
    if (open[P.id] === undefined) return { parts: [], page: undefined };
    const now = await this.#now();
    const removed = written({ expect: seen(open), set: {} });
    const resolved = creation({ ...open, [P.resolvedAt]: now }, now + KEPT_MS);
    const notices = open[P.notifiedAt] === undefined ? [] : [noticeWrite(open, 'resolved', now)];
    return {
      page: open,
      parts: [{ key: openPageOf(tag), removed }, { key: pageOf(Number(open[P.id])), written: resolved }, ...notices],
    };
  }

  /** Notifies suppressed pages if people do not know their cause any more. @param resolved  the page that was resolved; undefined: checks all */
  async notifyHidden(resolved?: Fields): Promise<void> {
    const now = await this.#now();
    const roots = [resolved?.[P.tag], resolved?.[P.root]].filter((root) => root !== undefined);
    const open = await this.openPages();
    const hidden = open
      .filter((page) => page[P.notifiedAt] === undefined && page[P.root] !== undefined)
      .filter((page) => resolved === undefined || roots.includes(page[P.root] ?? ''))
      .sort((a, b) => Number(b[P.severity]) - Number(a[P.severity]) || Number(a[P.id]) - Number(b[P.id]));
    const told: Fields[] = open.filter((page) => page[P.notifiedAt] !== undefined);
    for (const page of hidden) {
      const notified = { ...page, [P.notifiedAt]: now };
      if (isKnown(page, told, now)) continue;
      const change = { expect: seen(page), set: { [P.notifiedAt]: now } };
      const isDone = await this.#rows.together([
        { key: openPageOf(String(page[P.tag])), written: written(change) },
        noticeWrite(page, 'opened', now),
      ]);
      if (isDone) told.push(notified);
    }
    this.noteNotices();
  }

  /** Reads every open page. */
  async openPages(): Promise<readonly Fields[]> {
    return (await this.#rows.all(PAGES, OPEN_PAGES.first, OPEN_PAGES.last)).map(fieldsOf);
  }

  async list({ resolved, actor, before, limit }: PageFilter): Promise<PageRecord[]> {
    const over = resolved ? await this.#rows.all(PAGES, RESOLVED_PAGES.first, RESOLVED_PAGES.last) : [];
    return [...(await this.openPages()), ...over.map(fieldsOf)]
      .filter((page) => Number(page[P.id]) < before && (actor === undefined || Number(page[P.actor]) === actor))
      .sort((a, b) => Number(b[P.id]) - Number(a[P.id]))
      .slice(0, limit)
      .map(recordOf);
  }

  /** @throws NotFound */
  async show(id: number): Promise<PageRecord> {
    const open = (await this.openPages()).find((page) => page[P.id] === id);
    if (open !== undefined) return recordOf(open);
    const over = await this.#rows.get(pageOf(id));
    if (over === undefined) throw new NotFound(`there is no page ${id}`);
    return recordOf(fieldsOf(over));
  }

  /** @returns whether it was open */
  async ack(id: number, by: string | undefined): Promise<boolean> {
    const open = (await this.openPages()).find((page) => page[P.id] === id);
    if (open === undefined) return false;
    const now = await this.#now();
    const key = openPageOf(String(open[P.tag]));
    const after = await this.#rows.decide(key, (fields) => {
      if (fields[P.id] !== id || fields[P.ackedAt] !== undefined) return undefined;
      const set = { [P.ackedAt]: now, ...(by !== undefined && { [P.ackedBy]: by }) };
      return { expect: { [P.id]: id, [P.ackedAt]: null }, set };
    });
    return after !== undefined || open[P.ackedAt] !== undefined;
  }

  async #isKnown(page: Fields, now: number): Promise<boolean> {
    if (page[P.root] === undefined || page[P.root] === page[P.tag]) return false;
    return isKnown(page, await this.openPages(), now);
  }

  #now(): Promise<number> {
    return this.#rows.engine.serviceTime(this.#rows.limits);
  }
}

function noticeWrite(page: Fields, kind: 'opened' | 'escalated' | 'resolved', now: number): PartialWrite {
  const fields = { q: page[P.id], g: page[P.tag], k: kind, v: page[P.severity], t: now, a: 0, y: '[]' };
  return { key: noticeOf(now, freshName()), written: creation(fields) };
}
