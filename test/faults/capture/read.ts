import type pg from 'pg';
import type { CaptureHistory, ChangeRow, Difference, LogRow } from './check/history.ts';
import { COPIED, PROJECTED } from './declaration.ts';
import { ROW } from './schema.ts';

type Rows = ReadonlyMap<string, string>;

/** Reads the history when all work has ended. `eye` reads the captured database, `there` the database of the copy. */
export async function readCapture(
  eye: pg.Pool,
  there: pg.Pool,
): Promise<Pick<CaptureHistory, 'rows' | 'differences' | 'audit' | 'log' | 'journal'>> {
  const wanted = await rowsOf(eye, ROW);
  const found = await Promise.all([
    ...PROJECTED.map(async (table) => compare(table, wanted, await rowsOf(eye, `select * from ${table}`))),
    rowsOf(there, `select * from ${COPIED}`).then((rows) => compare(COPIED, wanted, rows)),
  ]);
  const audit = await eye.query<ChangeRow>('select source, op, key from faults_audit order by n');
  const log = await eye.query<LogRow>(`
    select c.id::int as change, case c.source when 0 then 'orders' else 'order_line' end as source, c.op, c.key
    from pawl.capture_change c join pawl.capture_definition d on d.id = c.capture where d.entity = 'shop' order by c.id`);
  const journal = await eye.query<LogRow>(
    'select change::int as change, source, op, key from faults_journal order by n',
  );
  return { rows: wanted.size, differences: found.flat(), audit: audit.rows, log: log.rows, journal: journal.rows };
}

async function rowsOf(eye: pg.Pool, query: string): Promise<Rows> {
  const columns = 'x.id, x.status, x.freight, x.customer, x.employee, x.shipper, x.lines, x.segments, x.territories';
  const { rows } = await eye.query<{ key: string; row: string }>(
    `select x.id::text as key, row(${columns})::text as row from (${query}) x`,
  );
  return new Map(rows.map(({ key, row }) => [key, row]));
}

function compare(table: string, wanted: Rows, found: Rows): Difference[] {
  const keys = new Set([...wanted.keys(), ...found.keys()]);
  return [...keys].flatMap((key): Difference[] => {
    const [want, have] = [wanted.get(key) ?? null, found.get(key) ?? null];
    return want === have ? [] : [{ table, key, wanted: want, found: have }];
  });
}

/** Work of one sort that remains: how much, and in words. */
export interface WorkLeft {
  readonly count: number;
  readonly told: string;
}

/** The remaining work of the consumers; empty if there is none. */
export async function readLeft(eye: pg.Pool): Promise<WorkLeft[]> {
  const { rows } = await eye.query<WorkLeft>(`
    select count(*)::int as count, format('%s changes of %s, such as %s of source %s', count(*), l.name, min(d.key), min(d.source)) as told
      from pawl.capture_dirty d join pawl.capture_line l on l.id = d.line group by l.name
    union all
    select 1, format('%s of %s failed %s times: %s', r.key, l.name, r.attempt, left(r.error, 300))
      from pawl.capture_retry r join pawl.capture_line l on l.id = r.line
    union all
    select 1, format('%s is gone through, after %s', l.name, s.after)
      from pawl.capture_sweep s join pawl.capture_line l on l.id = s.line where s.phase <> 'done'
    union all
    select count(*)::int, format('%s changes for %s', count(*), l.name) from pawl.capture_change c
      join pawl.capture_line l on l.capture = c.capture and l.guarantee = 'ordered'
      where c.xid >= pg_snapshot_xmin(l.seen) and not pg_visible_in_snapshot(c.xid, l.seen) group by l.name`);
  return rows;
}

/** What the sessions of the server do, and since when, to explain remaining work. */
export async function readSessions(eye: pg.Pool): Promise<string[]> {
  const { rows } = await eye.query<{ told: string }>(`
    select format('%s %s %s, %s for %s s, waits for %s %s: %s', datname, pid, application_name, state,
      extract(epoch from clock_timestamp() - state_change)::int, wait_event, pg_blocking_pids(pid), left(query, 120)) as told
    from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid() order by datname, pid`);
  return rows.map(({ told }) => told);
}
