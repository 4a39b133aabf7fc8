import { type PostgresEngine, statement } from 'pawl/postgres';
import type { Unit } from 'pawl/queue';

const BEGIN = statement(
  'spreadsheet_run.begin',
  `insert into spreadsheet_run (job, token, attempt, process)
   select job, $2, attempt, $4 from unnest($1::bigint[], $3::integer[]) u (job, attempt)
   on conflict do nothing`,
);

const APPLY = statement(
  'spreadsheet_run.apply',
  'update spreadsheet_run set applied_at = clock_timestamp() where token = $2 and job = any ($1::bigint[])',
);

// An apply is committed together with the job's outcome, so a run that begins after one, or a second apply, is a job that was
// done twice. A run that was killed has no apply, and the run after it is no double.
const DOUBLES = statement(
  'spreadsheet_run.doubles',
  `select count(*)::integer as jobs from (
     select r.job from spreadsheet_run r
     join spreadsheet_run done on done.job = r.job and done.token <> r.token and done.applied_at is not null
     where r.applied_at is not null or r.started_at > done.applied_at
     group by r.job
   ) twice`,
);

/** Notes that a run of these jobs begins: at once, so that it is recorded even if the process is killed. */
export async function beginRun(engine: PostgresEngine, unit: Unit): Promise<void> {
  const jobs = unit.jobs.map(({ id }) => id);
  const attempts = unit.jobs.map(({ attempt }) => attempt);
  await engine.query(BEGIN, [jobs, unit.token, attempts, process.pid]);
}

/** Notes, in the unit's own transaction, that its jobs are done. */
export async function applyRun(unit: Unit): Promise<void> {
  await unit.tx.query(APPLY, [unit.jobs.map(({ id }) => id), unit.token]);
}

/** How many jobs were done more than once. Must be 0. */
export async function countDoubleRuns(engine: PostgresEngine): Promise<number> {
  const [row] = await engine.query<{ jobs: number }>(DOUBLES);
  return row?.jobs ?? 0;
}

const INTERRUPTED = statement(
  'spreadsheet_run.interrupted',
  `select distinct j.key as id from spreadsheet_run r join pawl.job j on j.shard = 0 and j.id = r.job
   where r.process = $1 and r.applied_at is null and r.started_at > clock_timestamp() - interval '10 seconds'`,
);

/** The spreadsheets that a process had begun to write, and had not when it was killed. */
export async function interruptedBy(engine: PostgresEngine, pid: number): Promise<string[]> {
  const rows = await engine.query<{ id: string }>(INTERRUPTED, [pid]);
  return rows.map(({ id }) => id);
}
