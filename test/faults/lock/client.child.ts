// A client of locks: executes its threads of steps. After a kill, each thread continues with its next step. The client notes its requests, the
// answers, and its beliefs. Effects are its writes under a guard.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { LeaseLost } from '../../../src/base/errors.ts';
import { createLocks, type Lock, type LockOptions } from '../../../src/lock/index.ts';
import { clock, note, plant, ready, url } from '../member/member-side.ts';
import type { ClientEvent } from './history.ts';
import type { LockPlan, Step } from './plan.ts';
import { plantInClient } from './plants.ts';

const { engine, waiterMs, seed }: Pick<LockPlan, 'engine' | 'waiterMs' | 'seed'> = JSON.parse(
  process.env['PLAN'] ?? '{}',
);
const threads: Step[][] = JSON.parse(readFileSync(process.env['THREADS'] ?? '', 'utf8'));
const [LOOK_MS, TICK_MS, STILL_MS] = [10, 50, 200];

if (plant !== undefined) await plantInClient(engine, plant);
// To load an unused SDK would be half of the start of the process.
const ground = url.startsWith('http')
  ? (await import('./ground/dynamodb.ts')).dynamoGround(url, seed, plant)
  : (await import('./ground/postgres.ts')).postgresGround(url);
const locks = createLocks(ground.engine, { waiterLease: waiterMs });
const ops = new WeakMap<Lock, string>();
/** Operations that got their lock. */
const granted = new Set<string>();

locks.on('lost', ({ lock, error }) => {
  const op = ops.get(lock);
  if (op !== undefined) note<ClientEvent>({ do: 'lost', op, reason: error.reason });
});

function take({ kind, names, capacity, leaseMs, waitMs, isFair, abortMs }: Step): Promise<Lock> {
  const options: LockOptions = {
    lease: leaseMs,
    wait: waitMs ?? Infinity,
    fair: isFair,
    ...(abortMs === null ? {} : { signal: AbortSignal.timeout(abortMs) }),
  };
  if (kind === 'permit') return locks.semaphore(names[0] ?? '', { permits: capacity }).acquire(options);
  return locks.acquire(names, { ...options, mode: kind === 'shared' ? 'shared' : 'exclusive' });
}

/** Notes whether the client believes that it holds the lock. The note has the time before the check. */
function look(op: string, lock: Lock): void {
  const at = clock();
  const { isHeld } = lock;
  note<ClientEvent & { at: number }>({ do: 'look', op, isHeld, at });
}

async function hold(op: string, { holdMs, writing, names }: Step, lock: Lock): Promise<void> {
  const looking = setInterval(() => look(op, lock), LOOK_MS);
  try {
    if (writing !== null) note<ClientEvent>({ do: 'wrote', op, how: 'unknown' });
    if (writing !== null) {
      const how = await ground.write(lock, names[0] ?? '', { op: `${process.env['FAULTS_NAME']}/${op}`, ...writing });
      note<ClientEvent>({ do: 'wrote', op, how });
    }
    await sleep(holdMs);
    look(op, lock);
  } finally {
    clearInterval(looking);
  }
}

async function once(op: string, { names }: Step): Promise<void> {
  const { ran } = await locks.oncePer(names[0] ?? '', '1h', () => sleep(20), { lease: '2s' });
  note<ClientEvent>({ do: 'ended', op, how: ran ? 'run' : 'not run' });
}

async function carryOut(op: string, step: Step): Promise<void> {
  if (step.kind === 'once') return once(op, step);
  if (step.kind === 'break') {
    await locks.break(step.names[0] ?? '', { reason: 'a step says so' });
    return note<ClientEvent>({ do: 'ended', op, how: 'broke' });
  }
  const lock = await take(step);
  ops.set(lock, op);
  granted.add(op);
  note<ClientEvent>({ do: 'granted', op, token: String(lock.token) });
  await hold(op, step, lock);
  await lock.release();
  note<ClientEvent>({ do: 'ended', op, how: 'released' });
}

async function run(op: string, step: Step): Promise<void> {
  await sleep(step.restMs);
  note<ClientEvent>({ do: 'ask', op, step });
  try {
    await carryOut(op, step);
  } catch (error) {
    const how = error instanceof LeaseLost ? 'lost' : granted.has(op) ? 'failed' : 'refused';
    note<ClientEvent>({ do: 'ended', op, how, error: error instanceof Error ? error.name : String(error) });
  }
}

/** The number of steps of a thread that earlier processes have begun. */
function begunBy(thread: number): number {
  const log = readFileSync(process.env['FAULTS_LOG'] ?? '', 'utf8');
  return log.split('\n').filter((line) => line.includes(`"do":"ask","op":"${thread}/`)).length;
}

async function work(thread: number): Promise<void> {
  const steps = threads[thread] ?? [];
  for (let at = begunBy(thread); at < steps.length; at += 1) {
    const step = steps[at];
    if (step !== undefined) await run(`${thread}/${at}`, step);
  }
  note<ClientEvent>({ do: 'done', thread });
}

let tickedAt = clock();
setInterval(() => {
  const ms = clock() - tickedAt - TICK_MS;
  tickedAt = clock();
  if (ms > STILL_MS) note<ClientEvent>({ do: 'lag', ms });
}, TICK_MS);

ready(async () => {
  await locks.stop();
  await ground.stop();
});
await Promise.all(threads.map((_, thread) => work(thread)));
