import { createActorAdmin } from '../../actor/index.ts';
import { createCaptureAdmin } from '../../capture/index.ts';
import type { Drift, PostgresEngine } from '../../engine/postgres/index.ts';
import {
  inspectPath,
  inspectServer,
  inspectTables,
  type ServerFacts,
  type TableFacts,
} from '../../engine/postgres/inspect.ts';
import { type QueueHealth, readQueueHealth } from '../../queue/index.ts';
import { checkActors } from './actor-checks.ts';
import { checkCaptures } from './capture-checks.ts';
import { checkCitus } from './citus-check.ts';
import { type Finding, fail, ok, warn } from './finding.ts';
import { checkPath } from './path-check.ts';

const OLDEST = 14;
const NEWEST = 18;
const NOTIFY_MS = 5000;
const CLOCK_MS = 5000;
const OLD_TRANSACTION_MS = 60 * 60 * 1000;
/** Fewer dead rows than this are not reported. */
const DEAD_ROWS = 50_000;

/** Runs the checks that need the database. If the check of the schema fails, the checks that need the schema are left out. */
export async function examine(engine: PostgresEngine): Promise<Finding[]> {
  const server = await inspectServer(engine);
  const schema = await checkSchema(engine);
  const findings = [...checkServer(server), schema, await checkNotify(engine, server.hasPooler), checkClock(server)];
  findings.push(checkSnapshots(server), checkPath(await inspectPath(engine)));
  if (schema.verdict === 'fail') return findings;
  return [
    ...findings,
    ...checkDrift(await engine.drift()),
    ...(await checkCitus(engine)),
    checkTables(await inspectTables(engine), engine.schema.name),
    ...checkQueues(await readQueueHealth(engine)),
    ...checkActors(await createActorAdmin(engine).health()),
    ...(await checkCaptures(createCaptureAdmin(engine))),
  ];
}

function checkServer(facts: ServerFacts): Finding[] {
  const { version, majorVersion, user, database, connectMs, roundTripMs, connections, maxConnections } = facts;
  const times = `connected in ${ms(connectMs)}, round trip ${ms(roundTripMs)}`;
  const isFull = connections > maxConnections * 0.9;
  return [
    isFull
      ? warn(
          'connection',
          `${connections} of ${maxConnections} connections are in use`,
          'lower the pools, or use a pooler',
        )
      : ok('connection', `${user} in ${database}, ${times}, ${connections} of ${maxConnections} connections in use`),
    majorVersion < OLDEST
      ? fail('server', `Postgres ${version} is too old`, `upgrade to Postgres ${OLDEST} to ${NEWEST}`)
      : majorVersion > NEWEST
        ? warn(
            'server',
            `Postgres ${version} is newer than what this version was tested with (${NEWEST})`,
            'upgrade pawl',
          )
        : ok('server', `Postgres ${version}`),
    facts.isReadOnly
      ? fail(
          'writable',
          'the database takes no writes: a standby, or read-only by its settings',
          'use the URL of the primary',
        )
      : ok('writable', 'yes'),
    facts.hasPooler
      ? warn(
          'pooler',
          'a pooler or proxy is in front of the database',
          'give directUrl in the config file for LISTEN, and prepare: false if it keeps no prepared statements',
        )
      : ok('pooler', 'none seen'),
  ];
}

async function checkSchema(engine: PostgresEngine): Promise<Finding> {
  const { state, applied, pending, functions, problem } = await engine.status();
  if (state === 'current') return ok('schema', `up to date, ${applied.length} migrations`);
  if (state === 'behind') {
    const lines = functions.filter((set) => set.state === 'behind').length;
    return fail('schema', `behind by ${pending.length} migrations and the functions of ${lines} lines`, 'pawl migrate');
  }
  const fix = state === 'newer' ? 'upgrade pawl here: npm install pawl@latest' : 'restore what was changed';
  return fail('schema', problem ?? state, fix);
}

/** One finding for each difference, with the SQL that mends it. */
function checkDrift(drift: readonly Drift[]): Finding[] {
  if (drift.length === 0) return [ok('objects', 'as the migrations have made them')];
  return drift.map(({ kind, name, problem, mend }) => fail(`${kind} ${name}`, problem, mend));
}

async function checkNotify(engine: PostgresEngine, hasPooler: boolean): Promise<Finding> {
  const subscription = await engine.listen('pawl_doctor', () => {});
  try {
    const late = new Promise<false>((resolve) => setTimeout(resolve, NOTIFY_MS, false).unref());
    if (await Promise.race([subscription.tested, late])) return ok('notify', 'arrives');
    const fix = `${hasPooler ? 'give' : 'if a pooler stands before the database, give'} directUrl in the config file`;
    return warn('notify', 'NOTIFY does not arrive: workers find new jobs by polling alone', fix);
  } finally {
    await subscription.stop();
  }
}

function checkClock({ clockAheadMs }: ServerFacts): Finding {
  const detail = `the server is ${ms(Math.abs(clockAheadMs))} ${clockAheadMs < 0 ? 'behind' : 'ahead of'} this machine`;
  return Math.abs(clockAheadMs) > CLOCK_MS
    ? warn('clock', detail, 'synchronise the clocks (NTP); leases do not mind, but times in logs will not match')
    : ok('clock', detail);
}

function checkSnapshots({ oldestTransaction: oldest }: ServerFacts): Finding {
  if (oldest === undefined || oldest.ageMs < OLD_TRANSACTION_MS)
    return ok('transactions', 'none has been open for long');
  const hours = (oldest.ageMs / OLD_TRANSACTION_MS).toFixed(1);
  return warn(
    'transactions',
    `process ${oldest.pid} (${oldest.application || 'no name'}) has had a transaction open for ${hours} h, so dead rows cannot be removed`,
    `end it: select pg_terminate_backend(${oldest.pid})`,
  );
}

function checkTables(tables: readonly TableFacts[], schema: string): Finding {
  const bytes = tables.reduce((sum, table) => sum + table.bytes, 0);
  const bloated = tables.filter(({ rows, deadRows }) => deadRows > DEAD_ROWS && deadRows > rows);
  const largest = tables.slice(0, 3).map((table) => `${table.name} ${size(table.bytes)}`);
  if (bloated.length === 0) return ok('tables', `${size(bytes)} in all: ${largest.join(', ')}…`);
  const names = bloated.map(({ name, deadRows }) => `${name} (${deadRows} dead rows)`).join(', ');
  const fix = bloated.map(({ name }) => `vacuum ${schema}.${name};`).join(' ');
  return warn('tables', `more dead rows than live ones in ${names}`, fix);
}

function checkQueues({ lostWorkers, strandedKeys, blockedKeys, unattended, paused }: QueueHealth): Finding[] {
  const holding = lostWorkers.filter(({ jobs }) => jobs > 0);
  const lost = lostWorkers.map((one) => `${one.process} of ${one.queue} with ${one.jobs} jobs`).join(', ');
  const start = 'start a worker of the queue: pawl worker --config FILE';
  return [
    holding.length > 0
      ? fail('workers', `lost, and no process takes over: ${lost}`, start)
      : lostWorkers.length > 0
        ? warn('workers', `lost, without jobs: ${lost}`, 'nothing: the next worker removes them')
        : ok('workers', 'none is lost'),
    strandedKeys.length > 0
      ? fail(
          'keys',
          `busy, but held by no process: ${strandedKeys.map(({ queue, key }) => `${queue}/${key}`).join(', ')}`,
          'this is a fault in Pawl: please report it, with the output of pawl doctor -o json',
        )
      : ok('keys', 'every busy key has an owner'),
    blockedKeys.length > 0
      ? warn(
          'blocked keys',
          `behind jobs in error: ${blockedKeys.map(({ queue, key, job }) => `${queue}/${key} by job ${job}`).join(', ')}`,
          `pawl job retry ${blockedKeys[0]?.job}, or skip it: pawl job skip ${blockedKeys[0]?.job}`,
        )
      : ok('blocked keys', 'no key is blocked by a job in error'),
    unattended.length > 0
      ? warn('queues', `jobs wait, but no worker runs: ${unattended.join(', ')}`, start)
      : ok('queues', 'no jobs wait without a worker'),
    paused.length > 0
      ? warn('paused', paused.join(', '), `pawl queue resume ${paused[0]}`)
      : ok('paused', 'no queue is paused'),
  ];
}

function ms(value: number): string {
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

function size(bytes: number): string {
  return bytes < 1024 * 1024 ? `${Math.round(bytes / 1024)} kB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}
