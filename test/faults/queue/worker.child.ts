// A worker of the queue "faults". It notes the start and the outcome of each handler. Effects are rows of faults_effect, written in a
// guarded transaction, or in the transaction of the claim.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { postgres } from '../../../src/engine/postgres/index.ts';
import {
  cancelled,
  createQueue,
  discard,
  NoRetry,
  retryAfter,
  snooze,
  type Unit,
  Verdict,
} from '../../../src/queue/index.ts';
import { block, note, plant, ready, url } from '../member/member-side.ts';
import { declaration, LEDGER, type Manner, type Orders, RETRY_AFTER_MS, SNOOZE_MS } from './declaration.ts';
import { takeEffect } from './effect.ts';
import { beginOf, type WorkerEvent } from './history.ts';
import type { QueuePlan, WorkerPlan } from './plan.ts';
import { plantInWorker } from './plants.ts';

const { hold, concurrency, prefetch, version }: WorkerPlan = JSON.parse(process.env['WORKER'] ?? '{}');
const plan: QueuePlan = JSON.parse(process.env['PLAN'] ?? '{}');
const { hasLedger, leaseMs } = plan;
const declared = declaration({ ...plan, version });
const POLL_MS = 200;
const LEDGER_SLOTS = 2;

if (plant !== undefined) plantInWorker(plant);
const engine = postgres(url, { max: concurrency + 4 + (hasLedger ? LEDGER_SLOTS + 3 : 0) });
const queue = createQueue(engine, 'faults', declared);

async function write(unit: Unit, lateMs: number): Promise<void> {
  if (hold === 'transaction') {
    if (plant === 'an effect is outside of its transaction') await engine.transaction((tx) => takeEffect(unit, tx));
    else await takeEffect(unit, unit.tx);
    await sleep(lateMs);
    return;
  }
  await engine.transaction(async (tx) => {
    await takeEffect(unit, tx);
    await sleep(lateMs);
    await unit.guard(tx);
  });
}

async function act(unit: Unit): Promise<unknown> {
  const { ms = 0, lateMs = 0 } = unit.payload as Partial<Orders>;
  const how = mannerOf(unit);
  if (how === 'block' || how === 'block and throw') block(ms);
  else if (how === 'deaf') await sleep(ms);
  else if (ms > 0) await sleep(ms, undefined, { signal: unit.signal });
  if (how === 'die') process.kill(process.pid, 'SIGKILL');
  if (how === 'throw' || how === 'block and throw') throw new Error('as it was told to');
  if (how === 'refuse') throw new NoRetry('as it was told to');
  await write(unit, lateMs);
  if (how === 'throw late') throw new Error('as it was told to, late');
  // oxlint-disable-next-line typescript/only-throw-error -- what handlers throw by mistake
  if (how === 'throw nothing') throw undefined;
  if (how === 'some') unit.jobs.forEach((job, at) => at % 2 === 1 && unit.fail(job, new Error('one of two')));
  if (how === 'snooze one') unit.jobs.slice(-1).forEach((job) => unit.fail(job, snooze(SNOOZE_MS)));
  const said = say(how);
  // A handler may return or throw each of these requests.
  if (said !== undefined && unit.attempt % 2 === 0) throw said;
  const circle: { self?: object } = {};
  circle.self = circle;
  return how === 'circle' ? circle : said;
}

function say(how: Manner): Verdict | undefined {
  if (how === 'snooze') return snooze(SNOOZE_MS);
  if (how === 'retry after') return retryAfter(RETRY_AFTER_MS);
  if (how === 'cancel') return cancelled('as it was told to');
  return how === 'discard' ? discard('as it was told to') : undefined;
}

/** How often each job was snoozed in this process: a snooze spends no attempt, so the handler must end the snoozes. */
const snoozed = new Map<string, number>();

function mannerOf({ attempt, payload, job: { id } }: Unit): Manner {
  const { how = 'well', times = 0 } = payload as Partial<Orders>;
  if (attempt > times) return 'well';
  if (!how.startsWith('snooze')) return how;
  const asked = snoozed.get(id) ?? 0;
  snoozed.set(id, asked + 1);
  return asked < times ? how : 'well';
}

async function handle(given: Unit | readonly Unit[]): Promise<unknown> {
  if ('length' in given) return handleTogether(given);
  note<WorkerEvent>(beginOf(given, hold));
  return finish(given);
}

/** Each unit has its own outcome. */
async function handleTogether(units: readonly Unit[]): Promise<unknown[]> {
  const call = randomUUID();
  for (const unit of units) note<WorkerEvent>({ ...beginOf(unit, hold), call });
  return Promise.all(
    units.map((unit) =>
      finish(unit).catch((error: unknown) => (error instanceof Error ? error : new Error('nothing was thrown'))),
    ),
  );
}

async function finish(unit: Unit): Promise<unknown> {
  const { processId: process } = unit;
  try {
    const result = await act(unit);
    note<WorkerEvent>({ do: 'end', process, how: result instanceof Verdict ? nameOf(result) : 'well' });
    return result;
  } catch (error) {
    note<WorkerEvent>({ do: 'end', process, how: nameOf(error) });
    throw error;
  }
}

function nameOf(error: unknown): string {
  if (error instanceof Verdict) return `asked for ${error.to}`;
  return error instanceof Error ? error.name : 'nothing';
}

const kinds = Object.keys(declared.kinds);
const handlers = Object.fromEntries(kinds.map((kind) => [kind, handle]));
const options = { hold, prefetch, lease: leaseMs, poll: POLL_MS };
const worker = queue.work(handlers, { ...options, concurrency });
const ledger = hasLedger
  ? createQueue(engine, LEDGER.name, LEDGER.options).work({ book: handle }, { ...options, concurrency: LEDGER_SLOTS })
  : undefined;
ledger?.events.on('error', () => {});
worker.events.on('lost', () => note<WorkerEvent>({ do: 'lost' }));
worker.events.on('stale', () => note<WorkerEvent>({ do: 'stale' }));
worker.events.on('error', () => {});
await Promise.all([worker.started, ledger?.started]);
ready(async () => {
  await Promise.all([worker.stop({ timeout: '10s' }), ledger?.stop({ timeout: '10s' })]);
  await engine.stop();
});
