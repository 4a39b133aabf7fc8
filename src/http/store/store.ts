import { ActorOverview } from '../../actor/index.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { LockOverview } from '../../lock/index.ts';
import { QueueOverview } from '../../queue/index.ts';
import { AuditStore } from './audit.ts';
import { BulkStore } from './bulk.ts';
import { ChartStore } from './charts.ts';
import { HistoryStore } from './history.ts';
import { JobStore } from './jobs.ts';
import { LiveStore } from './live.ts';
import { SessionStore } from './sessions.ts';

/** All reads of this surface: the overviews of the capabilities, queries over all of them, and tables of its own. */
export class HttpStore {
  readonly actors: ActorOverview;
  readonly audit: AuditStore;
  readonly bulk: BulkStore;
  readonly charts: ChartStore;
  readonly history: HistoryStore;
  readonly jobs: JobStore;
  readonly live: LiveStore;
  readonly locks: LockOverview;
  readonly queues: QueueOverview;
  readonly sessions: SessionStore;

  /** @param reads  an engine with a time limit for each statement */
  constructor(reads: PostgresEngine, writes: PostgresEngine) {
    this.actors = new ActorOverview(reads);
    this.audit = new AuditStore(reads, writes);
    this.bulk = new BulkStore(reads, writes);
    this.charts = new ChartStore(reads);
    this.history = new HistoryStore(reads);
    this.jobs = new JobStore(reads, writes);
    this.live = new LiveStore(reads);
    this.locks = new LockOverview(reads);
    this.queues = new QueueOverview(reads);
    this.sessions = new SessionStore(reads, writes);
  }
}
