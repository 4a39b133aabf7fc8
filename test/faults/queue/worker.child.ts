// A worker of the queue "faults". It notes when each handler begins and how it ends; what took effect is rows of faults_effect,
// written in a guarded transaction, or in that of the claim.
import { setTimeout as sleep } from 'node:timers/promises';
import { postgres, statement, type Transaction } from '../../../src/engine/postgres/index.ts';
import { createQueue, NoRetry, type Unit } from '../../../src/queue/index.ts';
import { block, note, plant, ready, url } from '../member/member-side.ts';
import { declaration, type Orders } from './declaration.ts';
import type { WorkerEvent } from './history.ts';
import type { QueuePlan, WorkerPlan } from './plan.ts';
import { plantInWorker } from './plants.ts';

const { hold, concurrency, prefetch, version }: WorkerPlan = JSON.parse(process.env['WORKER'] ?? '{}');
const { shards, isRelated, leaseMs }: QueuePlan = JSON.parse(process.env['PLAN'] ?? '{}');
const declared = declaration({ version, shards, isRelated });
const EFFECT = statement(
  'faults.effect',
  'insert into faults_effect (job, process_id, token, attempt) select j, $2, $3, $4 from unnest($1::bigint[]) j',
);

const POLL_MS = 200;

if (plant !== undefined) plantInWorker(plant);
const engine = postgres(url, { max: concurrency + 4 });
const queue = createQueue(engine, 'faults', declared);

async function write(unit: Unit, tx: Transaction): Promise<void> {
  const ids = unit.jobs.map(({ id }) => id);
  await tx.query(EFFECT, [ids, unit.processId, unit.token.toString(), unit.attempt]);
}

async function takeEffect(unit: Unit, lateMs: number): Promise<void> {
  if (hold === 'transaction') {
    if (plant === 'an effect is outside of its transaction') await engine.transaction((tx) => write(unit, tx));
    else await write(unit, unit.tx);
    await sleep(lateMs);
    return;
  }
  await engine.transaction(async (tx) => {
    await write(unit, tx);
    await sleep(lateMs);
    await unit.guard(tx);
  });
}

async function act(unit: Unit): Promise<unknown> {
  const { ms = 0, how: manner = 'well', times = 0, lateMs = 0 } = unit.payload as Partial<Orders>;
  const how = unit.attempt <= times ? manner : 'well';
  if (how === 'block' || how === 'block and throw') block(ms);
  else if (how === 'deaf') await sleep(ms);
  else if (ms > 0) await sleep(ms, undefined, { signal: unit.signal });
  if (how === 'die') process.kill(process.pid, 'SIGKILL');
  if (how === 'throw' || how === 'block and throw') throw new Error('as it was told to');
  if (how === 'refuse') throw new NoRetry('as it was told to');
  await takeEffect(unit, lateMs);
  if (how === 'throw late') throw new Error('as it was told to, late');
  // oxlint-disable-next-line typescript/only-throw-error -- what handlers throw by mistake
  if (how === 'throw nothing') throw undefined;
  if (how === 'some') unit.jobs.forEach((job, at) => at % 2 === 1 && unit.fail(job, new Error('one of two')));
  const circle: { self?: object } = {};
  circle.self = circle;
  return how === 'circle' ? circle : undefined;
}

async function handle(unit: Unit): Promise<unknown> {
  const { kind, key, attempt, processId: process } = unit;
  const ids = unit.jobs.map(({ id }) => id);
  note<WorkerEvent>({ do: 'begin', process, ids, kind, key, attempt, token: unit.token.toString(), hold });
  try {
    const result = await act(unit);
    note<WorkerEvent>({ do: 'end', process, how: 'well' });
    return result;
  } catch (error) {
    note<WorkerEvent>({ do: 'end', process, how: error instanceof Error ? error.name : 'nothing' });
    throw error;
  }
}

const kinds = Object.keys(declared.kinds);
const handlers = Object.fromEntries(kinds.map((kind) => [kind, handle]));
const worker = queue.work(handlers, {
  hold,
  concurrency,
  prefetch,
  lease: leaseMs,
  poll: POLL_MS,
});
worker.events.on('lost', () => note<WorkerEvent>({ do: 'lost' }));
worker.events.on('stale', () => note<WorkerEvent>({ do: 'stale' }));
worker.events.on('error', () => {});
await worker.started;
ready(async () => {
  await worker.stop({ timeout: '10s' });
  await engine.stop();
});
