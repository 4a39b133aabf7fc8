import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { ActorStore } from './actors.ts';
import { AuditStore } from './audit.ts';
import { BulkStore } from './bulk.ts';
import { ChartStore } from './charts.ts';
import { HistoryStore } from './history.ts';
import { JobStore } from './jobs.ts';
import { LiveStore } from './live.ts';
import { LockStore } from './locks.ts';
import { ScheduleStore } from './schedules.ts';
import { SessionStore } from './sessions.ts';

/** The statements of this surface: what it shows beside what the capabilities offer, and its audit. */
export class HttpStore {
  readonly actors: ActorStore;
  readonly audit: AuditStore;
  readonly bulk: BulkStore;
  readonly charts: ChartStore;
  readonly history: HistoryStore;
  readonly jobs: JobStore;
  readonly live: LiveStore;
  readonly locks: LockStore;
  readonly schedules: ScheduleStore;
  readonly sessions: SessionStore;

  /** @param reads  with a limit to how long a statement may take */
  constructor(reads: PostgresEngine, writes: PostgresEngine) {
    this.actors = new ActorStore(reads);
    this.audit = new AuditStore(reads, writes);
    this.bulk = new BulkStore(reads, writes);
    this.charts = new ChartStore(reads);
    this.history = new HistoryStore(reads);
    this.jobs = new JobStore(reads, writes);
    this.live = new LiveStore(reads);
    this.locks = new LockStore(reads);
    this.schedules = new ScheduleStore(writes);
    this.sessions = new SessionStore(reads, writes);
  }
}
