import {
  instant,
  type OpenTransaction,
  type PostgresEngine,
  type Statement,
  statement,
} from '../../engine/postgres/index.ts';
import type { JobRecord, JobStatus, JobTransition } from '../job.ts';
import type { NamedJob } from '../job-id.ts';
import type { OwnOptions } from '../job-options.ts';
import type { Facts } from '../operate/explain/explain.ts';
import type { QueueRecord, QueueStats, WorkerRecord } from '../operate/stats.ts';
import { type PausedPart, type ShownPart, toPausedPart } from '../paused-part.ts';
import { alone, only } from './runner.ts';

/** The columns of pawl.job under the names of JobRecord. */
const JOB = `id::text as id, queue, kind, key, "group", status, priority, attempt, payload, ${instant('enqueued_at')} as "enqueuedAt", ${instant('run_at')} as "runAt",
  ${instant('claimed_at')} as "claimedAt", ${instant('settled_at')} as "settledAt", process_id::text as "processId", error, progress, result,
  schedule as "scheduleName", ${instant('tick_at')} as "tickAt", options, attempts`;

/** `$1` names the job, as pawl.queue_named() says. */
const ONE = `select ${JOB} from pawl.job where (shard, id) = (select p.shard, p.id from pawl.queue_pick($1::jsonb) p)`;
const GET = statement('queue.get', ONE);
/** As one JSON text, since the library of the caller's transaction reads columns in its own way. */
const GET_IN_TX = `select pg_catalog.to_json(x)::text as answer from (${ONE}) x`;
const HISTORY = statement(
  'queue.history',
  `
select ${instant('at')} as at, from_status as "from", to_status as "to", attempt, process_id::text as "processId", worker::text as worker, reason, error
from pawl.queue_history(pawl.queue_find($1::text, $2::bigint), $2::bigint)`,
);
const STATS = statement('queue.stats', 'select pawl.queue_stats($1::text, $2::int) as answer');
const LEFT = statement('queue.left', 'select ready, parked, running, delayed from pawl.queue_has_work($1::text)');
const LIST = statement(
  'queue.list',
  `
select name, shards, keyed, attempts, pg_catalog.to_json(extract(epoch from history) * 1000::numeric) as "historyMs", ${instant('paused_at')} as "pausedAt",
  ${instant('created_at')} as "createdAt", kinds, workers, paused_parts as "pausedParts", blocked_keys as "blockedKeys",
  per_group as "perGroup", case when rate_limit is not null
    then pg_catalog.json_build_object('limit', rate_limit, 'perMs', extract(epoch from rate_per) * 1000::numeric) end as rate
from pawl.queue
order by name`,
);
const WORKERS = statement(
  'queue.workers',
  `
select id::text as id, queue, host, pid, hold, concurrency, in_progress::int as "inProgress", ${instant('started_at')} as "startedAt",
  ${instant('beat_at')} as "beatAt", is_live as "isLive"
from pawl.worker
where $1::text is null or queue = $1::text
order by queue, id`,
);
const PAUSE = statement('queue.pause', 'select pawl.queue_pause($1::text)');
const PAUSE_PART = statement(
  'queue.pause_part',
  'select pawl.queue_pause_part($1::text, $2::text, $3::text, $4::text)',
);
const RESUME_PART = statement(
  'queue.resume_part',
  'select pawl.queue_resume_part($1::text, $2::text, $3::text, $4::text, 1000) as back',
);
const RESUME = statement('queue.resume', 'select pawl.queue_resume($1::text)');
type ByHand = 'update' | 'cancel' | 'retry' | 'finish' | 'skip' | 'redrive' | 'erase' | 'move';

/** Changes by hand, in the form of SQL: see sql/queue/operate/by_hand.sql. */
const byHand = (what: ByHand): string => `select pawl.${what}($1::jsonb)::text as answer`;
/** The same in a transaction of its own, which also decides about the jobs after it. */
const byItself = (what: ByHand): string => `select pawl.queue_change('${what}', $1::jsonb, false)::text as answer`;
const CHANGES: Readonly<Record<ByHand, Statement>> = {
  update: statement('queue.update', byHand('update')),
  cancel: statement('queue.cancel', byItself('cancel')),
  retry: statement('queue.retry', byItself('retry')),
  finish: statement('queue.finish', byItself('finish')),
  skip: statement('queue.skip', byItself('skip')),
  redrive: statement('queue.redrive', byHand('redrive')),
  move: statement('queue.move', byHand('move')),
  erase: statement('queue.erase', byItself('erase')),
};
const CHANGE_MANY = statement(
  'queue.change_many',
  'select pawl.queue_change_many($1::text, $2::text, $3::bigint[], $4::text, $5::text, $6::text) as answer',
);
/** Gives a job of a run a row of its own, before a transaction that stays open changes the job; see pawl.queue_isolate(). */
const ISOLATE = statement('queue.isolate', 'select pawl.queue_isolate($1::jsonb)');
const RELEASE = statement('queue.release', 'select pawl.queue_release_worker($1::bigint) as released');
const EXPLAIN = statement('queue.explain', 'select pawl.queue_explain($1::text, $2::bigint) as facts');
/** Only an attempt to lock its row shows that a job is held. To a role that may lock no rows, no job seems held. */
const IS_HELD = statement(
  'queue.is_held',
  `select case when pg_catalog.has_table_privilege('pawl.queue_ready'::regclass::oid, 'update'::text) then pawl.queue_is_held($1::bigint)
  else false end as "isHeld"`,
);
const SEARCH = statement('queue.search', 'select pawl.queue_search($1::json) as answer');
const JOBS = statement(
  'queue.jobs',
  `
select ${JOB}
from pg_catalog.unnest($1::bigint[]) with ordinality u (wanted, nth)
cross join lateral (select * from pawl.job j where j.shard = pawl.queue_shard_of(u.wanted) and j.id = u.wanted) j
order by u.nth`,
);

/** The places of a queue that have jobs. */
export interface RemainingWork {
  readonly ready: boolean;
  readonly parked: boolean;
  readonly running: boolean;
  readonly delayed: boolean;
}

/** The result of releasing a worker. */
export interface ReleasedWorker {
  /** How many jobs were given back. */
  readonly jobs: number;
  /** How many jobs it still has, because open transactions hold them: they are given back when these have ended. */
  readonly left: number;
}

/** One page of a search: the ids, and the position of the next page. */
export interface FoundPage {
  readonly ids: readonly string[];
  readonly next: string | null;
  /** How many jobs the index does not have yet, if the search needs it. */
  readonly behind: number;
}

/** One job that was changed by hand, and its status now. */
export interface ChangedJob {
  readonly id: string;
  readonly status: JobStatus;
}

/** A change of many jobs; `reason` of a cancel, `to` and `toKind` of a move. */
export interface ManyChange {
  readonly what: 'retry' | 'cancel' | 'erase' | 'move';
  readonly reason?: string | undefined;
  readonly to?: string | undefined;
  readonly toKind?: string | undefined;
}

/** The outcome for many jobs. */
export interface ManyChanged {
  readonly done: number;
  readonly refused: number;
  readonly busy: number;
}

interface JobRow extends Omit<JobRecord, 'schedule' | 'expiresAt' | 'tags' | 'meta'> {
  readonly scheduleName: string | null;
  readonly tickAt: Date | null;
  readonly options: OwnOptions | null;
}

interface QueueRow extends Omit<QueueRecord, 'pausedParts'> {
  readonly pausedParts: readonly ShownPart[];
}

interface StatsRow extends Omit<QueueStats, 'paused' | 'pausedAt' | 'pausedParts'> {
  readonly pausedParts: readonly ShownPart[];
  readonly pausedAt: string | null;
}

/** The statements that read queues and change them by hand. `queue` null means any queue. One round trip each. */
export class PostgresQueueReader {
  readonly engine: PostgresEngine;

  constructor(engine: PostgresEngine) {
    this.engine = engine;
  }

  /** @throws NotFound */
  async get(named: NamedJob, tx?: OpenTransaction): Promise<JobRecord> {
    const request = JSON.stringify(named);
    if (tx === undefined) return toRecord(only((await this.engine.query<JobRow>(GET, [request]))[0]));
    const [row] = await this.engine.callIn(tx, GET_IN_TX, request);
    return toRecord(withDates(JSON.parse(String(only(row)['answer'])) as JobJson));
  }

  /** @throws NotFound */
  history(queue: string | null, id: string): Promise<JobTransition[]> {
    return this.engine.query<JobTransition>(HISTORY, [queue, id]);
  }

  /** Counts stop at `most`. @throws NotFound */
  async stats(queue: string, most: number): Promise<QueueStats> {
    const [row] = await this.engine.query<{ answer: StatsRow }>(STATS, [queue, most]);
    const { pausedAt, pausedParts, ...stats } = only(row).answer;
    const since = pausedAt === null ? null : new Date(pausedAt);
    return { ...stats, paused: pausedAt !== null, pausedAt: since, pausedParts: pausedParts.map(toPausedPart) };
  }

  /** @throws NotFound */
  async left(queue: string): Promise<RemainingWork> {
    const [row] = await this.engine.query<RemainingWork>(LEFT, [queue]);
    return only(row);
  }

  async list(): Promise<QueueRecord[]> {
    const rows = await this.engine.query<QueueRow>(LIST);
    return rows.map((row) => ({ ...row, pausedParts: row.pausedParts.map(toPausedPart) }));
  }

  workers(queue: string | null): Promise<WorkerRecord[]> {
    return this.engine.query<WorkerRecord>(WORKERS, [queue]);
  }

  /** Two round trips. @throws NotFound */
  async explain(queue: string | null, id: string): Promise<Facts> {
    const [row] = await this.engine.query<{ facts: Omit<Facts, 'isHeld'> }>(EXPLAIN, [queue, id]);
    const { facts } = only(row);
    if (facts.status !== 'new') return { ...facts, isHeld: false };
    const [held] = await this.engine.query<{ isHeld: boolean }>(IS_HELD, [id]);
    return { ...facts, isHeld: only(held).isHeld };
  }

  /** Bounded work: see pawl.queue_search(). @throws NotFound  no such queue or kind */
  async search(search: object): Promise<FoundPage> {
    const [row] = await this.engine.query<{ answer: FoundPage }>(SEARCH, [JSON.stringify(search)]);
    return only(row).answer;
  }

  /** The existing ones of these jobs, in this order. */
  async jobs(ids: readonly string[]): Promise<JobRecord[]> {
    return (await this.engine.query<JobRow>(JOBS, [ids])).map(toRecord);
  }

  /** @throws NotFound */
  async pause(queue: string): Promise<void> {
    await this.engine.decide(PAUSE, [queue]);
  }

  /** @throws NotFound */
  async resume(queue: string): Promise<void> {
    await this.engine.decide(RESUME, [queue]);
  }

  /** @throws NotFound, Conflict */
  async pausePart(queue: string, { kind, key, tag }: Omit<PausedPart, 'since'>): Promise<void> {
    await alone(this.engine).query(PAUSE_PART, [queue, kind, key, tag]);
  }

  /** In pieces. If a process dies in between, the workers finish the rest. @throws NotFound */
  async resumePart(queue: string, { kind, key, tag }: Omit<PausedPart, 'since'>): Promise<void> {
    for (;;) {
      const [row] = await alone(this.engine).query<{ back: string | number }>(RESUME_PART, [queue, kind, key, tag]);
      if (Number(only(row).back) === 0) return;
    }
  }

  /** `busy`: another transaction holds the worker's row now. @throws NotFound */
  async release(worker: string): Promise<ReleasedWorker | 'busy'> {
    const [row] = await alone(this.engine).query<{ released: ReleasedWorker | null }>(RELEASE, [worker]);
    return only(row).released ?? 'busy';
  }

  /** Each job by itself, in one transaction. `busy`: another transaction holds it. */
  async changeMany(
    queue: string | null,
    { what, reason, to, toKind }: ManyChange,
    ids: readonly string[],
  ): Promise<ManyChanged> {
    const values = [queue, what, ids, to ?? null, toKind ?? null, reason ?? null];
    const [row] = await alone(this.engine).query<{ answer: ManyChanged }>(CHANGE_MANY, values);
    return only(row).answer;
  }

  /**
   * Changes one job by hand, in the caller's transaction or one of its own. @throws NotFound, Conflict
   * @throws LockNotAvailable  for 2 s another transaction has held the job
   */
  async change(what: keyof typeof CHANGES, named: NamedJob, rest: object, tx?: OpenTransaction): Promise<ChangedJob> {
    const text = JSON.stringify({ ...named, ...rest });
    if (tx !== undefined) await this.engine.query(ISOLATE, [JSON.stringify(named)]);
    const [row] =
      tx === undefined
        ? await alone(this.engine).query<{ answer: string }>(CHANGES[what], [text])
        : await this.engine.callIn(tx, byHand(what), text);
    return JSON.parse(String(only(row).answer)) as ChangedJob;
  }
}

const TIMES = ['enqueuedAt', 'runAt', 'claimedAt', 'settledAt', 'tickAt'] as const;

type JobJson = Omit<JobRow, (typeof TIMES)[number]> & Readonly<Record<(typeof TIMES)[number], number | null>>;

function withDates(row: JobJson): JobRow {
  const times = TIMES.map((name) => {
    const ms = row[name];
    return [name, ms === null ? null : new Date(ms)];
  });
  return { ...row, ...(Object.fromEntries(times) as Pick<JobRow, (typeof TIMES)[number]>) };
}

function toRecord({ scheduleName: name, tickAt: at, options, ...job }: JobRow): JobRecord {
  const { expiresAt, tags = [], meta = null } = options ?? {};
  const schedule = name === null || at === null ? null : { name, at };
  return { ...job, schedule, expiresAt: expiresAt === undefined ? null : new Date(expiresAt), tags, meta };
}
