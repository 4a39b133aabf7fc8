import { randomBytes } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { recordLog } from '../../support/log.ts';
import { LONG } from '../../support/long.ts';
import { SqlSession } from '../sql-session.ts';

// Payloads of megabytes: the size of one claim is bounded.

async function open(): Promise<{ engine: PostgresEngine; sql: SqlSession }> {
  const database = await freshDatabase();
  const engine = postgres(database.url, { max: 10, logger: recordLog() });
  const sql = await SqlSession.open(database.url);
  onTestFinished(async () => {
    await sql.end();
    await engine.stop();
    await database.drop();
  });
  return { engine, sql };
}

const MB = 1_000_000;
/** Made once: of the megabytes of all tests it would be a second of the processor. */
const LARGE = randomBytes(15 * MB).toString('base64');

/** A text that hardly compresses, of at most 20 MB. */
function text(length: number): string {
  return LARGE.slice(0, length);
}

test("a unit with coalesce: 'all' has at most 16 MB of payloads, and at least one job; the rest are the next units", async () => {
  const { engine } = await open();
  const queue = createQueue(engine, 'large', { kinds: { save: { coalesce: 'all', maxBytes: 32_000_000 } } });
  const sizes = [6, 6, 6, 20, 1, 1].map((size) => size * MB);
  const ids: string[] = [];
  for (const size of sizes) ids.push((await queue.enqueue('save', text(size), { key: 'doc' })).id);
  const units: number[][] = [];
  const ran: string[] = [];
  const worker = queue.work({
    save: ({ jobs }) => {
      units.push(jobs.map(({ payload }) => String(payload).length / MB));
      for (const { id } of jobs) ran.push(id);
    },
  });
  onTestFinished(() => worker.stop());
  await queue.drain({ timeout: '60s' });
  expect(units).toEqual([[6, 6], [6], [20], [1, 1]]);
  expect(ran).toEqual(ids);
});

type Ways = readonly (readonly [string, key: (n: number) => string | undefined, isOneRun: boolean])[];
const WAYS: Ways = [
  ['jobs of one run', () => undefined, true],
  ['jobs of one key', () => 'k', true],
];
const MORE_WAYS: Ways = [
  ['jobs by themselves', () => undefined, false],
  ['jobs of many keys', (n) => `k${n}`, true],
];

test.for([...WAYS, ...(LONG ? MORE_WAYS : [])])(
  'a claim returns at most 16 MB of payloads, and at least one job: %s',
  async ([, key, isOneRun]) => {
    const { engine } = await open();
    const queue = createQueue(engine, 'plain', { kinds: { save: { maxBytes: 32_000_000 } } });
    const jobs = Array.from({ length: 7 }, (_, n) => ({ kind: 'save', payload: text(5 * MB), key: key(n) }) as const);
    if (isOneRun) await queue.enqueueMany(jobs);
    else for (const { kind, payload } of jobs) await queue.enqueue(kind, payload);
    const claimed: number[] = [];
    let ran = 0;
    const worker = queue.work({ save: () => void (ran += 1) }, { concurrency: 40 });
    worker.events.on('claimed', ({ jobs: count }) => claimed.push(count));
    onTestFinished(() => worker.stop());
    await queue.drain({ timeout: '60s' });
    expect(ran).toBe(7);
    expect(Math.max(...claimed)).toBeLessThanOrEqual(3);
  },
);

test("a unit with coalesce: 'latest' comes with one payload, however many jobs it has", async () => {
  const { engine, sql } = await open();
  const queue = createQueue(engine, 'latest', { kinds: { save: { coalesce: 'latest', maxBytes: 32_000_000 } } });
  for (let n = 0; n < 20; n += 1) await queue.enqueue('save', { n, text: text(MB) }, { key: 'doc' });
  const id = await sql.one<number>(`select pawl.queue_id('latest')`);
  const other = await sql.addWorker(id);
  await sql.begin();
  const length = await sql.one<number>(
    `select length(pawl.queue_claim($1::smallint, 0::smallint, $2, 40, 40, 100, 32, (-32768)::smallint, 0))`,
    [id, other],
  );
  expect(length).toBeLessThan(2 * MB);
  await sql.client.query('rollback');
  const seen: unknown[] = [];
  const worker = queue.work({
    save: ({ payload, jobs }) => void seen.push(jobs.length, Reflect.get(Object(payload), 'n')),
  });
  onTestFinished(() => worker.stop());
  await queue.drain({ timeout: '60s' });
  expect(seen).toEqual([1, 19]);
  expect((await queue.stats()).new).toBe(0);
});
