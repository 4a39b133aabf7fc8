import { Conflict, NotFound } from '../../base/errors.ts';
import { instant, type PostgresEngine, statement } from '../../engine/postgres/index.ts';

const RECORD = `b.id::text as id, b.who, b.action, b.queue, b.query, b.reason, b.to_queue as "to", b.to_kind as "toKind", b.most as limit,
  case when b.ended_at is null and (b.held_until is null or b.held_until < clock_timestamp()) then 'waiting' else b.status end as status,
  ${instant('b.started_at')} as "startedAt", ${instant('b.ended_at')} as "endedAt", b.found, b.collected, b.done, b.refused, b.error`;

const START = statement(
  'http.bulk_start',
  `
insert into pawl.http_bulk as b (who, action, queue, query, reason, most, to_queue, to_kind)
select $1, $2, $3, $4, $5, $6::int, $8, $9
where (select count(*) from (select 1 from pawl.http_bulk o where o.ended_at is null limit $7::int) x) < $7
returning ${RECORD}`,
);

/** For jobs that the request names, so no search is needed. */
const START_ON = statement(
  'http.bulk_start_on',
  `
with b as (
  insert into pawl.http_bulk (who, action, query, reason, most, found, collected, to_queue, to_kind)
  select $1, $2, '', $3, pg_catalog.cardinality($4::bigint[]), pg_catalog.cardinality($4::bigint[]), true, $6, $7
  where (select count(*) from (select 1 from pawl.http_bulk o where o.ended_at is null limit $5::int) x) < $5
  returning *
), item as (
  insert into pawl.http_bulk_item (bulk, n, job) select b.id, x.n, x.job from b, pg_catalog.unnest($4::bigint[]) with ordinality x (job, n)
)
select ${RECORD} from b`,
);

const LIST = statement(
  'http.bulk_list',
  `select ${RECORD} from pawl.http_bulk b where b.id < $1::bigint order by b.id desc limit $2::int`,
);

const GET = statement('http.bulk_get', `select ${RECORD} from pawl.http_bulk b where b.id = $1::bigint`);

const RESULTS = statement(
  'http.bulk_results',
  `
select i.n, i.job::text as job, i.outcome, i.detail
from pawl.http_bulk_item i
where i.bulk = $1::bigint and i.n > $2::int and i.outcome is not null and ($3::text is null or i.outcome = $3)
order by i.n
limit $4::int`,
);

/** An action that no process holds is ended at once; a process that holds it sees the request when it next saves its progress. */
const STOP = statement(
  'http.bulk_stop',
  `
update pawl.http_bulk b
set stopping = true,
  status = case when b.held_until > clock_timestamp() then b.status else 'stopped' end,
  ended_at = case when b.held_until > clock_timestamp() then null else clock_timestamp() end
where b.id = $1::bigint and b.ended_at is null
returning ${RECORD}`,
);

/** The oldest action that no process holds, and the number of open ones. */
const TAKE = statement(
  'http.bulk_take',
  `
with next as (
  select b.id from pawl.http_bulk b
  where b.ended_at is null and (b.held_until is null or b.held_until < clock_timestamp())
  order by b.id limit 1 for update skip locked
), taken as (
  update pawl.http_bulk b
  set holder = $1::uuid, held_until = clock_timestamp() + $2::float8 * interval '1 ms', takes = b.takes + 1
  from next n where b.id = n.id
  returning b.id::text as id, b.queue, b.query, b.most, b.found, b.cursor, b.collected, b.settled, b.takes
)
select (select pg_catalog.to_json(t) from taken t) as taken, (select count(*)::int from pawl.http_bulk b where b.ended_at is null) as open`,
);

/** Saves the jobs of one page of the search, and its cursor; this also renews the lease. */
const COLLECT = statement(
  'http.bulk_collect',
  `
with mine as (
  update pawl.http_bulk b
  set found = b.found + pg_catalog.cardinality($3::bigint[]), cursor = $4, collected = $5::boolean, takes = 0,
    held_until = clock_timestamp() + $6::float8 * interval '1 ms'
  where b.id = $1::bigint and b.holder = $2::uuid and b.ended_at is null
  returning b.id, b.found, b.stopping
), added as (
  insert into pawl.http_bulk_item (bulk, n, job)
  select m.id, m.found - pg_catalog.cardinality($3::bigint[]) + x.n, x.job from mine m, pg_catalog.unnest($3::bigint[]) with ordinality x (job, n)
)
select m.found, m.stopping from mine m`,
);

const CHANGE = statement('http.bulk_change', 'select pawl.http_bulk_change($1::bigint, $2::int, $3::uuid) as outcome');

const REFUSE = statement(
  'http.bulk_refuse',
  `
update pawl.http_bulk_item i set outcome = 'refused', detail = $4
where i.bulk = $1::bigint and i.n = $2::int and i.outcome is null
  and exists (select 1 from pawl.http_bulk b where b.id = i.bulk and b.holder = $3::uuid and b.ended_at is null)`,
);

/** Counts the outcomes of the items up to this one, and renews the lease. */
const ADVANCE = statement(
  'http.bulk_advance',
  `
update pawl.http_bulk b
set done = b.done + x.done, refused = b.refused + x.refused, settled = $3::int, takes = 0,
  held_until = clock_timestamp() + $4::float8 * interval '1 ms'
from (
  select count(*) filter (where i.outcome = 'done')::int as done, count(*) filter (where i.outcome = 'refused')::int as refused
  from pawl.http_bulk o join pawl.http_bulk_item i on i.bulk = o.id and i.n > o.settled and i.n <= $3
  where o.id = $1::bigint) x
where b.id = $1 and b.holder = $2::uuid and b.ended_at is null
returning b.stopping`,
);

const END = statement(
  'http.bulk_end',
  `
update pawl.http_bulk b
set status = $3, error = $4, ended_at = clock_timestamp(), holder = null, held_until = null
where b.id = $1::bigint and b.holder = $2::uuid and b.ended_at is null`,
);

const RELEASE = statement(
  'http.bulk_release',
  `
update pawl.http_bulk b set holder = null, held_until = clock_timestamp() + $3::float8 * interval '1 ms'
where b.id = $1::bigint and b.holder = $2::uuid and b.ended_at is null`,
);

const PRUNE = statement(
  'http.bulk_prune',
  `
delete from pawl.http_bulk
where id in (
  select b.id from pawl.http_bulk b
  where b.ended_at < clock_timestamp() - $1::float8 * interval '1 ms' order by b.ended_at limit 10)`,
);

export type BulkAction = 'retry' | 'cancel' | 'finish' | 'redrive' | 'move' | 'erase';

export interface BulkRequest {
  readonly action: BulkAction;
  /** The queue that jobs are moved to, and their kind there. */
  readonly to: string | undefined;
  readonly toKind: string | undefined;
  readonly queue: string | undefined;
  readonly query: string;
  readonly reason: string | undefined;
  readonly limit: number;
}

/** The change, whichever jobs it is for. */
export type BulkWhat = Pick<BulkRequest, 'action' | 'reason' | 'to' | 'toKind'>;

/** The state of a bulk action. */
export interface BulkRecord {
  readonly id: string;
  readonly who: string;
  readonly action: BulkAction;
  readonly to: string | null;
  readonly toKind: string | null;
  readonly queue: string | null;
  /** Empty if the request named the jobs. */
  readonly query: string;
  readonly reason: string | null;
  readonly limit: number;
  /** `waiting`: no process works on it. */
  readonly status: 'waiting' | 'running' | 'done' | 'stopped' | 'failed';
  readonly startedAt: Date;
  readonly endedAt: Date | null;
  readonly found: number;
  /** Whether all jobs have been found. */
  readonly collected: boolean;
  readonly done: number;
  readonly refused: number;
  readonly error: string | null;
}

/** The outcome for one job. */
export interface BulkResult {
  readonly n: number;
  readonly job: string;
  readonly outcome: 'done' | 'refused';
  /** The job's status now, or why the change was refused. */
  readonly detail: string;
}

/** A bulk action that a process works on. */
export interface TakenBulk {
  readonly id: string;
  readonly queue: string | null;
  readonly query: string;
  readonly most: number;
  readonly found: number;
  readonly cursor: string | null;
  readonly collected: boolean;
  readonly settled: number;
  readonly takes: number;
}

export type BulkOutcome = 'done' | 'refused' | 'settled' | 'busy' | 'lost';

/** Bulk actions in the database. An answer of undefined, or `lost`, means that another process has the action by now. */
export class BulkStore {
  readonly #reads: PostgresEngine;
  readonly #writes: PostgresEngine;

  constructor(reads: PostgresEngine, writes: PostgresEngine) {
    this.#reads = reads;
    this.#writes = writes;
  }

  /** @throws Conflict  too many are open already */
  async start(request: BulkRequest, who: string, most: number): Promise<BulkRecord> {
    const { action, queue, query, reason, limit, to, toKind } = request;
    const values = [who, action, queue ?? null, query, reason ?? null, limit, most, to ?? null, toKind ?? null];
    const [row] = await this.#writes.query<BulkRecord>(START, values);
    return row ?? tooMany(most);
  }

  /** @throws Conflict  too many are open already */
  async startOn(
    jobs: readonly string[],
    { action, reason, to, toKind }: BulkWhat,
    who: string,
    most: number,
  ): Promise<BulkRecord> {
    const values = [who, action, reason ?? null, jobs, most, to ?? null, toKind ?? null];
    const [row] = await this.#writes.query<BulkRecord>(START_ON, values);
    return row ?? tooMany(most);
  }

  list(before: string, limit: number): Promise<BulkRecord[]> {
    return this.#reads.query<BulkRecord>(LIST, [before, limit]);
  }

  /** @throws NotFound */
  async get(id: string): Promise<BulkRecord> {
    const [row] = await this.#reads.query<BulkRecord>(GET, [id]);
    return row ?? missing(id);
  }

  results(id: string, after: number, outcome: string | undefined, limit: number): Promise<BulkResult[]> {
    return this.#reads.query<BulkResult>(RESULTS, [id, after, outcome ?? null, limit]);
  }

  /** @throws NotFound @throws Conflict  it has ended */
  async stop(id: string): Promise<BulkRecord> {
    const [row] = await this.#writes.query<BulkRecord>(STOP, [id]);
    if (row !== undefined) return row;
    const { status } = await this.get(id);
    throw new Conflict(`bulk action ${id} has ended already: it is ${status}`);
  }

  async take(holder: string, leaseMs: number): Promise<{ taken: TakenBulk | null; open: number }> {
    const [row] = await this.#writes.query<{ taken: TakenBulk | null; open: number }>(TAKE, [holder, leaseMs]);
    return row ?? { taken: null, open: 0 };
  }

  async collect(
    id: string,
    holder: string,
    page: { readonly jobs: readonly string[]; readonly cursor: string | null; readonly isLast: boolean },
    leaseMs: number,
  ): Promise<{ found: number; stopping: boolean } | undefined> {
    const values = [id, holder, page.jobs, page.cursor, page.isLast, leaseMs];
    const [row] = await this.#writes.query<{ found: number; stopping: boolean }>(COLLECT, values);
    return row;
  }

  async change(id: string, n: number, holder: string): Promise<BulkOutcome> {
    const [row] = await this.#writes.query<{ outcome: BulkOutcome }>(CHANGE, [id, n, holder]);
    return row?.outcome ?? 'lost';
  }

  async refuse(id: string, n: number, holder: string, why: string): Promise<void> {
    await this.#writes.query(REFUSE, [id, n, holder, why]);
  }

  async advance(
    id: string,
    holder: string,
    settled: number,
    leaseMs: number,
  ): Promise<{ stopping: boolean } | undefined> {
    const [row] = await this.#writes.query<{ stopping: boolean }>(ADVANCE, [id, holder, settled, leaseMs]);
    return row;
  }

  async end(id: string, holder: string, status: 'done' | 'stopped' | 'failed', error: string | null): Promise<void> {
    await this.#writes.query(END, [id, holder, status, error]);
  }

  /** Gives the action up. After this time, another process or this one may take it. */
  async release(id: string, holder: string, afterMs: number): Promise<void> {
    await this.#writes.query(RELEASE, [id, holder, afterMs]);
  }

  async prune(keepMs: number): Promise<void> {
    await this.#writes.query(PRUNE, [keepMs]);
  }
}

function missing(id: string): never {
  throw new NotFound(`there is no bulk action ${id}; they are kept for 30 days after their end`);
}

function tooMany(most: number): never {
  throw new Conflict(`${most} bulk actions are under way already; wait for one of them, or stop it`);
}
