import { Expression, type Fields, fieldsOf, num, text } from '../../../engine/dynamodb/index.ts';
import type { Notice } from '../../postgres/reader.ts';
import type { ActorRows } from '../database.ts';
import { NOTICES, openPageOf, PAGES, pageOf, sortKey } from '../rows.ts';
import { isKnown, P, recordOf, severityOf } from './page-row.ts';
import type { Pages } from './pages.ts';

/** If a process has not delivered a notification within this time, any process may take it again. */
const TAKEN_MS = 30_000;
const READ_AT_ONCE = 100;

/** The outbox of notifications. Each has a row, which is removed once every channel has taken the notification. */
export class Notices {
  readonly #rows: ActorRows;
  readonly #pages: Pages;

  constructor(rows: ActorRows, pages: Pages) {
    this.#rows = rows;
    this.#pages = pages;
  }

  /** Takes notifications to deliver now, each for 30 s. One query, if there are none. */
  async takeNotices(limit: number): Promise<Notice[]> {
    const items = await this.#rows.range(PAGES, NOTICES.first, NOTICES.last, READ_AT_ONCE);
    if (items.length === 0) return [];
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const due = items
      .map((item) => ({ sk: sortKey(item), fields: fieldsOf(item) }))
      .filter(({ fields }) => Number(fields['t']) <= now)
      .slice(0, limit);
    const open = due.length === 0 ? [] : await this.#pages.openPages();
    const taken: Notice[] = [];
    for (const { sk, fields } of due) {
      const notice = await this.#take(sk, fields, open, now);
      if (notice !== undefined) taken.push(notice);
    }
    return taken;
  }

  async #take(sk: string, fields: Fields, open: readonly Fields[], now: number): Promise<Notice | undefined> {
    const key = { pk: PAGES, sk };
    const page = open.find((one) => one[P.id] === fields['q']);
    const isFirst = fields['k'] === 'opened' && fields['a'] === 0;
    if (page !== undefined && isFirst && isKnown(page, open, now)) {
      // People know the cause by now, since another page was opened at the same moment. So this page is suppressed.
      const change = {
        expect: { [P.id]: page[P.id] ?? null, [P.notifiedAt]: page[P.notifiedAt] ?? null },
        set: { [P.notifiedAt]: null },
      };
      await this.#rows.change(openPageOf(String(page[P.tag])), change);
      await this.#rows.drop(key);
      return undefined;
    }
    const expect = { t: fields['t'] ?? null, a: fields['a'] ?? null };
    const attempt = Number(fields['a']) + 1;
    const { isDone } = await this.#rows.change(key, { expect, set: { t: now + TAKEN_MS, a: attempt } });
    if (!isDone) return undefined;
    const known = page ?? fieldsOf(await this.#rows.get(pageOf(Number(fields['q']))));
    if (known[P.id] === undefined) {
      await this.#rows.drop(key);
      return undefined;
    }
    const { tag, root, summary, details, actor, openedAt, count, id } = recordOf(known);
    const delivered: readonly string[] = JSON.parse(String(fields['y']));
    const isHidden = (one: Fields): boolean =>
      one[P.notifiedAt] === undefined && one[P.root] !== undefined && [tag, root].includes(String(one[P.root]));
    return {
      id: sk.slice(NOTICES.first.length),
      kind: kindOf(fields['k']),
      severity: severityOf(fields['v']),
      attempt,
      delivered,
      page: id,
      tag,
      root,
      summary,
      details,
      actor,
      openedAt,
      count,
      suppresses: page === undefined ? 0 : open.filter(isHidden).length,
    };
  }

  async noteDelivery({ id, delivered, wait, error }: DeliveryNote): Promise<void> {
    const key = { pk: PAGES, sk: `${NOTICES.first}${id}` };
    if (wait === null) return this.#rows.drop(key);
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const request = new Expression().set('t', num(now + wait)).set('y', text(JSON.stringify(delivered)));
    if (error !== null) request.set('e', text(error));
    request.when('attribute_exists(pk)');
    await this.#rows.engine.update(key, request.write(), 'NONE', this.#rows.limits);
  }
}

interface DeliveryNote {
  readonly id: string;
  readonly delivered: readonly string[];
  readonly wait: number | null;
  readonly error: string | null;
}

function kindOf(value: unknown): Notice['kind'] {
  return value === 'escalated' || value === 'resolved' ? value : 'opened';
}
