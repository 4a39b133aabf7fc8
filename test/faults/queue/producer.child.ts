// Executes the operations of the plan, one after another. After a kill it continues with the next one.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { postgres, type Transaction } from '../../../src/engine/postgres/index.ts';
import { createQueue, type JobInput } from '../../../src/queue/index.ts';
import { note, ready, url } from '../member/member-side.ts';
import { declaration, LEDGER, type Orders } from './declaration.ts';
import { answered, Hands, isUnknown } from './hands/act.ts';
import { goOn } from './hands/go-on.ts';
import { partsOf } from './hands/hand.ts';
import { Client } from './hands/pull.ts';
import type { ProducerEvent } from './history.ts';
import {
  childrenOf,
  type Enqueue,
  type Group,
  type JobBatch,
  type NewJob,
  type Operation,
  type QueuePlan,
} from './plan.ts';

const operations: Operation[] = JSON.parse(readFileSync(process.env['OPERATIONS'] ?? '', 'utf8'));
const plan: QueuePlan = JSON.parse(process.env['PLAN'] ?? '{}');
const { hasLedger } = plan;
const producer = Number(process.env['PRODUCER'] ?? 0);
const engine = postgres(url, { max: 3 });
const queue = createQueue(engine, 'faults', declaration({ ...plan, version: 2 }));
const ledger = createQueue(engine, LEDGER.name, LEDGER.options);

class RolledBack extends Error {}

function input(job: NewJob): JobInput & { readonly payload: Orders } {
  const { kind, key, priority, delayMs, expiresMs, tag, tenant, onError, orders } = job;
  const at = (ms: number): Date => new Date(performance.timeOrigin + performance.now() + ms);
  return {
    kind,
    payload: orders,
    priority,
    ...(key === null ? {} : { key }),
    ...(delayMs === 0 ? {} : { runAt: at(delayMs) }),
    ...(expiresMs === undefined ? {} : { expiresAt: at(expiresMs) }),
    ...(tag === undefined ? {} : { tags: [tag] }),
    ...(tenant === undefined ? {} : { group: tenant }),
    ...(onError === undefined ? {} : { onError }),
  };
}

interface AddResult {
  readonly ids: readonly string[];
  readonly duplicates: readonly number[];
}

async function add(jobs: readonly NewJob[], tx?: Transaction): Promise<AddResult> {
  const [first] = jobs;
  const into = first?.kind === 'book' ? ledger : queue;
  if (first === undefined || jobs.length > 1) {
    const ids = await into.enqueueMany(jobs.map(input), { tx });
    return { ids, duplicates: ids.duplicates };
  }
  const { kind, payload, ...options } = input(first);
  const { id, duplicate } = await into.enqueue(kind, payload, { ...options, tx });
  return { ids: [id], duplicates: duplicate ? [0] : [] };
}

type AddOutcome = AddResult & { readonly batches?: readonly { seal(): Promise<void> }[] };

async function addGroup(jobs: readonly NewJob[], group: Group, tx: Transaction): Promise<AddOutcome> {
  if (group.as === 'batch') {
    return addBatch(jobs, group, tx);
  }
  const named = jobs.map((job) => ({ ...input(job), name: `job ${job.orders.n}` }));
  const { afterError = 'run', afterCancel = 'run' } = group;
  const children = new Map(childrenOf(group, named).map(({ child, parents }) => [child, parents]));
  const ids: Readonly<Record<string, string>> = await queue.flow(
    named.map((node) => {
      const parents = children.get(node);
      return parents === undefined
        ? node
        : { ...node, after: parents.map(({ name }) => name), afterError, afterCancel };
    }),
    { tx },
  );
  return { ids: named.map(({ name }) => ids[name] ?? ''), duplicates: [] };
}

function call(n: number): { readonly kind: string; readonly payload: Orders } {
  return { kind: 'called', payload: { n, ms: 0, how: 'well', times: 0, lateMs: 0 } };
}

async function addBatch(jobs: readonly NewJob[], group: JobBatch, tx: Transaction): Promise<AddOutcome> {
  const { callback, completes, fails, nested } = group;
  const callbacks = {
    onDone: call(callback),
    ...(completes === undefined ? {} : { onComplete: call(completes) }),
    ...(fails === undefined ? {} : { onError: call(fails) }),
  };
  const batch = await queue.batch(callbacks, { tx });
  const own = jobs.length - (nested?.n ?? 0);
  const ids = await batch.enqueueMany(jobs.slice(0, own).map(input), { tx });
  if (nested === undefined) return { ids, duplicates: [], batches: [batch] };
  const inner = await batch.nested({ onDone: call(nested.callback) }, { tx });
  const more = await inner.enqueueMany(jobs.slice(own).map(input), { tx });
  return { ids: [...ids, ...more], duplicates: [], batches: [batch, inner] };
}

async function carryOut({ jobs, how, group }: Enqueue): Promise<AddOutcome> {
  if (how === 'alone') return add(jobs);
  return engine.transaction(async (tx) => {
    const added = group === undefined ? await add(jobs, tx) : await addGroup(jobs, group, tx);
    if (how === 'rolled back') throw new RolledBack('as it was told to');
    return added;
  });
}

/** If the answer is lost, the batch may be sealed, or open for ever. */
async function seal(at: number, batches: readonly { seal(): Promise<void> }[]): Promise<void> {
  await answered(Promise.all(batches.map((batch) => batch.seal()))).then(
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
    replaces: operation.jobs[0]?.kind === 'replaced',
  });
  try {
    const { ids, duplicates, batches } = await answered(carryOut(operation));
    note<ProducerEvent>({ do: 'told', operation: at, ids, duplicates });
    remember(at, ids, duplicates);
    if (batches !== undefined) await seal(at, batches);
    if (operation.cancels) await cancel(ids[0] ?? '');
  } catch (error) {
    note<ProducerEvent>({ do: 'failed', operation: at, error: String(error), isUnknown: isUnknown(error) });
  }
}

/** The job's history shows whether the cancellation succeeds. */
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
  if (hasLedger && producer === 0) await goOn(ledger, () => isStopping);
}

/** The notes of earlier processes of this member. */
function earlier(): ProducerEvent[] {
  const lines = readFileSync(process.env['FAULTS_LOG'] ?? '', 'utf8').split('\n');
  // A process that was killed while it wrote a note has left a part of the note.
  return lines.slice(0, -1).flatMap((line) => (line.endsWith('}') ? [JSON.parse(line)] : []));
}

/** The number of operations that earlier processes have begun. */
function begun(): number {
  const events = earlier();
  for (const event of events) if (event.do === 'told') remember(event.operation, event.ids, event.duplicates);
  return events.filter((event) => event.do === 'ask' || event.do === 'hand').length;
}

/** The ids of its jobs, by their numbers. */
const known = new Map<number, { readonly id: string; readonly orders: Orders }>();

/** A duplicate is the job of another request, and has the payload of that request. */
function remember(at: number, ids: readonly string[], duplicates: readonly number[]): void {
  const operation = operations[at];
  if (operation === undefined || 'hand' in operation) return;
  for (const [nth, { orders }] of operation.jobs.entries()) {
    if (!duplicates.includes(nth)) known.set(orders.n, { id: ids[nth] ?? '', orders });
  }
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
