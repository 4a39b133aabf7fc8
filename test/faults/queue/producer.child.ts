// Enqueues what the plan says, one operation after another; after a kill it goes on with the next one.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { ConnectionFailed } from '../../../src/base/errors.ts';
import { postgres, type Transaction } from '../../../src/engine/postgres/index.ts';
import { createQueue, type JobInput } from '../../../src/queue/index.ts';
import { note, ready, url } from '../member/member-side.ts';
import { declaration, type Orders } from './declaration.ts';
import type { ProducerEvent } from './history.ts';
import type { Group, NewJob, Operation, QueuePlan } from './plan.ts';

const operations: Operation[] = JSON.parse(readFileSync(process.env['OPERATIONS'] ?? '', 'utf8'));
const { shards, isRelated }: QueuePlan = JSON.parse(process.env['PLAN'] ?? '{}');
const engine = postgres(url, { max: 3 });
const queue = createQueue(engine, 'faults', declaration({ version: 2, shards, isRelated }));

const ANSWER_MS = 3000;

class RolledBack extends Error {}

function input({ kind, key, priority, delayMs, orders }: NewJob): JobInput & { readonly payload: Orders } {
  const runAt = delayMs === 0 ? {} : { runAt: new Date(performance.timeOrigin + performance.now() + delayMs) };
  return { kind, payload: orders, ...(key === null ? {} : { key }), priority, ...runAt };
}

async function add(jobs: readonly NewJob[], tx?: Transaction): Promise<{ ids: string[]; duplicate: boolean }> {
  const [first] = jobs;
  if (first === undefined || jobs.length > 1) {
    return { ids: await queue.enqueueMany(jobs.map(input), { tx }), duplicate: false };
  }
  const { kind, payload, ...options } = input(first);
  const { id, duplicate } = await queue.enqueue(kind, payload, { ...options, tx });
  return { ids: [id], duplicate };
}

type AddOutcome = Awaited<ReturnType<typeof add>> & { readonly batch?: { seal(): Promise<void> } };

async function addGroup(jobs: readonly NewJob[], group: Group, tx: Transaction): Promise<AddOutcome> {
  if (group.as === 'batch') {
    const payload: Orders = { n: group.callback, ms: 0, how: 'well', times: 0, lateMs: 0 };
    const batch = await queue.batch({ onDone: { kind: 'called', payload } }, { tx });
    return { ids: await batch.enqueueMany(jobs.map(input), { tx }), duplicate: false, batch };
  }
  const named = jobs.map((job) => ({ ...input(job), name: `job ${job.orders.n}` }));
  const before = named.slice(0, -1).map(({ name }) => name);
  const last = { after: before, afterError: 'run', afterCancel: 'run' } as const;
  const ids: Readonly<Record<string, string>> = await queue.flow(
    named.map((node, at) => (at < before.length ? node : { ...node, ...last })),
    { tx },
  );
  return { ids: named.map(({ name }) => ids[name] ?? ''), duplicate: false };
}

async function carryOut({ jobs, how, group }: Operation): Promise<AddOutcome> {
  if (how === 'alone') return add(jobs);
  return engine.transaction(async (tx) => {
    const added = group === undefined ? await add(jobs, tx) : await addGroup(jobs, group, tx);
    if (how === 'rolled back') throw new RolledBack('as it was told to');
    return added;
  });
}

/** Where its answer is lost, the batch may be open for ever, or be sealed. */
async function seal(at: number, batch: { seal(): Promise<void> }): Promise<void> {
  await answered(batch.seal()).then(
    () => note<ProducerEvent>({ do: 'sealed', operation: at }),
    () => {},
  );
}

async function operate(at: number, operation: Operation): Promise<void> {
  note<ProducerEvent>({
    do: 'ask',
    operation: at,
    numbers: operation.jobs.map(({ orders }) => orders.n),
    how: operation.how,
    group: operation.group,
  });
  try {
    const { ids, duplicate, batch } = await answered(carryOut(operation));
    note<ProducerEvent>({ do: 'told', operation: at, ids, duplicate });
    if (batch !== undefined) await seal(at, batch);
    if (operation.cancels) await cancel(ids[0] ?? '');
  } catch (error) {
    const isUnknown = error instanceof ConnectionFailed && error.outcome === 'unknown';
    note<ProducerEvent>({ do: 'failed', operation: at, error: String(error), isUnknown });
  }
}

/** What a silent network keeps from being answered ends with the process, as a health check would end it. */
async function answered<T>(work: Promise<T>): Promise<T> {
  const silent = setTimeout(() => process.kill(process.pid, 'SIGKILL'), ANSWER_MS);
  try {
    return await work;
  } finally {
    clearTimeout(silent);
  }
}

/** Whether it succeeds is for the job's history to say. */
async function cancel(id: string): Promise<void> {
  note<ProducerEvent>({ do: 'cancel', id });
  await answered(queue.cancel(id)).catch((error: Error) =>
    note<ProducerEvent>({ do: 'not cancelled', id, error: error.name }),
  );
}

async function work(): Promise<void> {
  for (let at = begun(); at < operations.length; at += 1) {
    const operation = operations[at];
    if (operation === undefined || isStopping) return;
    await sleep(operation.restMs);
    await operate(at, operation);
  }
  note<ProducerEvent>({ do: 'done' });
}

/** How many operations earlier lives have begun. */
function begun(): number {
  const log = readFileSync(process.env['FAULTS_LOG'] ?? '', 'utf8');
  return log.split('\n').filter((line) => line.includes('"do":"ask"')).length;
}

let isStopping = false;
let working: Promise<void> = Promise.resolve();
ready(async () => {
  isStopping = true;
  await working;
  await engine.stop();
});
working = work();
await working;
