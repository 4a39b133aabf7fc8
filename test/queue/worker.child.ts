// A worker process of the queue "faults". It notes every run in test_run, at once and outside of any transaction, and every
// effect in test_effect, inside unit.tx if there is one. The payload says what a job does.
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { Duration } from '../../src/base/time/duration.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
import { createQueue, type Unit } from '../../src/queue/index.ts';
import { FAULTS, type Orders, WEARY } from './faults.ts';

const {
  URL: url = '',
  HOLD,
  LEASE = '1s',
  CONCURRENCY = '4',
  FRAGILE = '2',
  POLL = '200ms',
  PREFETCH,
  QUIET,
  BLOCKS,
} = process.env;
const hold = HOLD === 'transaction' ? 'transaction' : 'lease';
const engine = postgres(url, { max: Number(CONCURRENCY) + 4 });
const notes = new pg.Pool({ connectionString: url, max: 4 });
notes.on('error', () => {});
const say = (message: object): void => console.log(JSON.stringify(message));
const ran: number[] = [];

const kinds = { ...FAULTS.kinds, fragile: { attempts: Number(FRAGILE) }, weary: WEARY };
const queue = createQueue(engine, 'faults', { ...FAULTS, kinds, ...(BLOCKS && { keyOnError: 'block' }) });
const handler = async (unit: Unit): Promise<void> => {
  const { ms = 0, dies = false, stops = false, guards = false } = (unit.payload ?? {}) as Orders;
  const id = Number(unit.job.id);
  ran.push(id);
  if (QUIET !== undefined) return;
  const run = [id, process.pid, unit.attempt, unit.token.toString()];
  await notes.query('insert into test_run (id, pid, attempt, token) values ($1, $2, $3, $4)', run);
  say({ run: id });
  if (ms > 0) await sleep(ms);
  if (dies) process.kill(process.pid, 'SIGKILL');
  if (stops) process.kill(process.pid, 'SIGSTOP');
  const effect = { text: 'insert into test_effect (id) values ($1)', values: [id] };
  if (hold === 'transaction') await unit.tx.client.query(effect);
  if (guards) {
    await engine
      .transaction(async (tx) => {
        await tx.client.query(effect);
        await unit.guard(tx);
      })
      .catch((error: Error) => say({ guard: error.name }));
  }
};
const worker = queue.work(
  {
    job: handler,
    fragile: handler,
    weary: () => {
      throw new Error('the other side is down');
    },
  },
  {
    hold,
    lease: LEASE as Duration,
    poll: POLL as Duration,
    concurrency: Number(CONCURRENCY),
    ...(PREFETCH !== undefined ? { prefetch: Number(PREFETCH) } : {}),
  },
);
worker.events.on('lost', () => say({ lost: true }));
worker.events.on('stale', ({ claims }) => say({ stale: claims.length }));
worker.events.on('error', () => {});
await worker.started;
say({ ready: true });
process.stdin.on('data', () => say({ ran }));
