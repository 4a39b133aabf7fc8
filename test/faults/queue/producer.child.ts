// Enqueues what the plan says, one operation after another; after a kill it goes on with the next one.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { postgres, type Transaction } from '../../../src/engine/postgres/index.ts';
import { createQueue, type JobInput } from '../../../src/queue/index.ts';
import { note, ready, url } from '../member/member-side.ts';
import { declaration, type Orders } from './declaration.ts';
import { answered, Hands, isUnknown } from './hands/act.ts';
import { partsOf } from './hands/hand.ts';
import { Client } from './hands/pull.ts';
import type { ProducerEvent } from './history.ts';
import type { Enqueue, Group, NewJob, Operation, QueuePlan } from './plan.ts';

const operations: Operation[] = JSON.parse(readFileSync(process.env['OPERATIONS'] ?? '', 'utf8'));
const { shards, isRelated }: QueuePlan = JSON.parse(process.env['PLAN'] ?? '{}');
const producer = Number(process.env['PRODUCER'] ?? 0);
const engine = postgres(url, { max: 3 });
const queue = createQueue(engine, 'faults', declaration({ version: 2, shards, isRelated }));

class RolledBack extends Error {}

function input(job: NewJob): JobInput & { readonly payload: Orders } {
  const { kind, key, priority, delayMs, expiresMs, tag, orders } = job;
  const at = (ms: number): Date => new Date(performance.timeOrigin + performance.now() + ms);
  return {
    kind,
    payload: orders,
    priority,
    ...(key === null ? {} : { key }),
    ...(delayMs === 0 ? {} : { runAt: at(delayMs) }),
    ...(expiresMs === undefined ? {} : { expiresAt: at(expiresMs) }),
    ...(tag === undefined ? {} : { tags: [tag] }),
  };
}

interface AddResult {
  readonly ids: readonly string[];
  readonly duplicates: readonly number[];
}

async function add(jobs: readonly NewJob[], tx?: Transaction): Promise<AddResult> {
  const [first] = jobs;
  if (first === undefined || jobs.length > 1) {
    const ids = await queue.enqueueMany(jobs.map(input), { tx });
    return { ids, duplicates: ids.duplicates };
  }
  const { kind, payload, ...options } = input(first);
  const { id, duplicate } = await queue.enqueue(kind, payload, { ...options, tx });
  return { ids: [id], duplicates: duplicate ? [0] : [] };
}

type AddOutcome = AddResult & { readonly batch?: { seal(): Promise<void> } };

async function addGroup(jobs: readonly NewJob[], group: Group, tx: Transaction): Promise<AddOutcome> {
  if (group.as === 'batch') {
    const payload: Orders = { n: group.callback, ms: 0, how: 'well', times: 0, lateMs: 0 };
    const batch = await queue.batch({ onDone: { kind: 'called', payload } }, { tx });
    return { ids: await batch.enqueueMany(jobs.map(input), { tx }), duplicates: [], batch };
  }
  const named = jobs.map((job) => ({ ...input(job), name: `job ${job.orders.n}` }));
  const before = named.slice(0, -1).map(({ name }) => name);
  const last = { after: before, afterError: 'run', afterCancel: 'run' } as const;
  const ids: Readonly<Record<string, string>> = await queue.flow(
    named.map((node, at) => (at < before.length ? node : { ...node, ...last })),
    { tx },
  );
  return { ids: named.map(({ name }) => ids[name] ?? ''), duplicates: [] };
}

async function carryOut({ jobs, how, group }: Enqueue): Promise<AddOutcome> {
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

async function enqueue(at: number, operation: Enqueue): Promise<void> {
  note<ProducerEvent>({
    do: 'ask',
    operation: at,
    numbers: operation.jobs.map(({ orders }) => orders.n),
    how: operation.how,
    group: operation.group,
  });
  try {
    const { ids, duplicates, batch } = await answered(carryOut(operation));
    note<ProducerEvent>({ do: 'told', operation: at, ids, duplicates });
    remember(at, ids);
    if (batch !== undefined) await seal(at, batch);
    if (operation.cancels) await cancel(ids[0] ?? '');
  } catch (error) {
    note<ProducerEvent>({ do: 'failed', operation: at, error: String(error), isUnknown: isUnknown(error) });
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
    if ('hand' in operation) await hands.carryOut(at, operation.hand);
    else await enqueue(at, operation);
  }
  if (operations.some((operation) => 'hand' in operation)) await hands.resumeAll(partsOf(producer), operations.length);
  note<ProducerEvent>({ do: 'done' });
}

/** What earlier lives have noted. */
function earlier(): ProducerEvent[] {
  const lines = readFileSync(process.env['FAULTS_LOG'] ?? '', 'utf8').split('\n');
  // One that was killed in the middle of a note has left a part of it.
  return lines.slice(0, -1).flatMap((line) => (line.endsWith('}') ? [JSON.parse(line)] : []));
}

/** How many operations earlier lives have begun. */
function begun(): number {
  const events = earlier();
  for (const event of events) if (event.do === 'told') remember(event.operation, event.ids);
  return events.filter((event) => event.do === 'ask' || event.do === 'hand').length;
}

/** The ids of its jobs, by their numbers. */
const known = new Map<number, { readonly id: string; readonly orders: Orders }>();

function remember(at: number, ids: readonly string[]): void {
  const operation = operations[at];
  if (operation === undefined || 'hand' in operation) return;
  operation.jobs.forEach(({ orders }, nth) => known.set(orders.n, { id: ids[nth] ?? '', orders }));
}

const hands = new Hands(queue, new Client(engine, queue, answered), (n) => known.get(n));

let isStopping = false;
let working: Promise<void> = Promise.resolve();
ready(async () => {
  isStopping = true;
  await working;
  await engine.stop();
});
working = work();
await working;
