import { ActorOverview, DynamoActorOverview } from '../../actor/index.ts';
import type { DynamoEngine } from '../../engine/dynamodb/index.ts';
import type { AnyQueueAdmin, TableQueueAdmin } from '../../queue/index.ts';
import { type LiveSnapshot, LiveStore } from '../store/live.ts';
import { HttpStore } from '../store/store.ts';
import type { AbsentDatabase } from './absent-database.ts';
import { TableJobs, TableQueues } from './jobs.ts';
import { TableAudit, TableSessions } from './rows.ts';

/** The reads of this surface on a table of DynamoDB. */
export class TableStore extends HttpStore {
  override readonly actors: TableActors;
  override readonly audit: TableAudit;
  override readonly jobs: TableJobs;
  override readonly live: TableLive;
  override readonly queues: TableQueues;
  override readonly sessions: TableSessions;

  constructor(engine: DynamoEngine, admin: TableQueueAdmin, absent: AbsentDatabase, auditMs: number) {
    super(absent, absent);
    const actors = new DynamoActorOverview(engine);
    this.actors = new TableActors(actors, absent);
    this.audit = new TableAudit(engine, absent, auditMs);
    this.jobs = new TableJobs(admin, absent);
    this.live = new TableLive(engine, admin, actors, absent);
    this.queues = new TableQueues(admin, absent);
    this.sessions = new TableSessions(engine, absent);
  }
}

/** Pages and workers of the actors. */
class TableActors extends ActorOverview {
  readonly #actors: DynamoActorOverview;

  constructor(actors: DynamoActorOverview, absent: AbsentDatabase) {
    super(absent);
    this.#actors = actors;
  }

  override async pages(...given: Parameters<ActorOverview['pages']>): ReturnType<ActorOverview['pages']> {
    const pages = await this.#actors.pages(...given);
    return pages.map(({ details: _details, ...page }) => page);
  }

  override async workers(): ReturnType<ActorOverview['workers']> {
    return (await this.#actors.workers()).map((worker) => ({ ...worker }));
  }
}

/** The live picture of the queues. It reads the line of each queue: some requests for each shard, while a client watches. */
class TableLive extends LiveStore {
  readonly #engine: DynamoEngine;
  readonly #admin: AnyQueueAdmin;
  readonly #actors: DynamoActorOverview;

  constructor(engine: DynamoEngine, admin: AnyQueueAdmin, actors: DynamoActorOverview, absent: AbsentDatabase) {
    super(absent);
    this.#engine = engine;
    this.#admin = admin;
    this.#actors = actors;
  }

  override async ping(): Promise<void> {
    await this.#engine.get({ pk: 'http:ping', sk: 'ping' }, { timeoutMs: 5000 });
  }

  override async snapshot(): Promise<LiveSnapshot> {
    const { actors, pages } = await this.#actors.picture();
    const names = (await this.#admin.list()).map(({ name }) => name);
    const queues = await Promise.all(
      names.map(async (name) => {
        const { pausedAt, paused: _paused, ...figures } = await this.#admin.stats(name);
        return { name, stats: { ...figures, pausedAt: pausedAt?.toISOString() ?? null } };
      }),
    );
    return {
      at: new Date(this.#engine.now()).toISOString(),
      queues,
      locks: { held: 0, waiting: 0 },
      actors,
      pages,
      oldestTransactionMs: null,
      connections: 0,
      maxConnections: 0,
      wraparound: 0,
    };
  }
}
