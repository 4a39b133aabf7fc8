import type { DynamoEngine } from '../../../engine/dynamodb/index.ts';
import { fieldsOf } from '../../../engine/dynamodb/index.ts';
import type { PageFilter } from '../../postgres/overview.ts';
import type { PageRecord } from '../../record.ts';
import { sortKey, WORKERS } from '../rows.ts';
import { DynamoActorStore } from '../store.ts';

const MOST = 1000;

/** A process that runs actors. */
export interface DynamoActorWorker {
  readonly id: string;
  readonly host: string;
  readonly pid: number;
  readonly concurrency: number;
  readonly startedAt: Date;
  readonly beatAt: Date;
  /** Always true: the worker has a row. The row of a dead worker is removed once it has not changed for a lease and a tenth. */
  readonly isLive: boolean;
  readonly types: readonly string[];
}

/** The types of actors, and pages, as a live picture shows them. */
export interface DynamoActorPicture {
  readonly actors: readonly {
    readonly type: string;
    readonly paused: boolean;
    /** Empty, since a count would have to read each actor. */
    readonly states: Readonly<Record<string, number>>;
    readonly workers: number;
  }[];
  readonly pages: { readonly open: number; readonly acked: number; readonly worst: string | null };
}

/** Pages and workers of all actors on a table of DynamoDB, as the HTTP API lists them. */
export class DynamoActorOverview {
  readonly #store: DynamoActorStore;

  constructor(engine: DynamoEngine) {
    this.#store = new DynamoActorStore(engine, 1);
  }

  async pages(before: string, { status, severity, actor }: PageFilter, limit: number): Promise<PageRecord[]> {
    const resolved = status === 'resolved' || status === 'all';
    const about = actor === undefined ? undefined : Number(actor);
    const all = await this.#store.pages.list({ resolved, actor: about, before: Number(before), limit: MOST });
    return all
      .filter((page) => status === undefined || status === 'all' || page.status === status)
      .filter((page) => severity === undefined || page.severity === severity)
      .slice(0, limit);
  }

  async workers(): Promise<DynamoActorWorker[]> {
    const items = await this.#store.rows.range(WORKERS, 'w#', 'w#~', MOST);
    const rows = items.map((item) => {
      const fields = fieldsOf(item);
      const taken: readonly number[] = JSON.parse(String(fields['y'] ?? '[]'));
      return { item, fields, taken };
    });
    const types = await this.#store.types.freshWith(rows.flatMap(({ taken }) => taken));
    return rows.map(({ item, fields, taken }) => ({
      id: String(Number(sortKey(item).slice(2))),
      host: String(fields['h']),
      pid: Number(fields['i']),
      concurrency: Number(fields['c']),
      startedAt: new Date(Number(fields['t'] ?? 0)),
      beatAt: new Date(Number(fields['b'] === 0 ? fields['t'] : fields['b'])),
      isLive: true,
      types: taken.flatMap((id) => types.get(id)?.name ?? []).sort(),
    }));
  }

  /** Reads types, workers and open pages: a query each. */
  async picture(): Promise<DynamoActorPicture> {
    const [workers, pages] = await Promise.all([
      this.workers(),
      this.#store.pages.list({ resolved: false, actor: undefined, before: Number.MAX_SAFE_INTEGER, limit: MOST }),
    ]);
    const types = await this.#store.types.fresh();
    const acked = pages.filter(({ status }) => status === 'acked').length;
    const worst = ['critical', 'error', 'warning', 'info'].find((one) =>
      pages.some(({ severity }) => severity === one),
    );
    return {
      actors: [...types.values()].map(({ name, pausedAt }) => ({
        type: name,
        paused: pausedAt > 0,
        states: {},
        workers: workers.filter(({ types: taken }) => taken.includes(name)).length,
      })),
      pages: { open: pages.length - acked, acked, worst: worst ?? null },
    };
  }
}
