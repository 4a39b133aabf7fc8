// A process that works and enqueues. It executes its steps, and after a kill it continues with the next one. Effects are its guarded writes.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { type TransactWriteItem, TransactWriteItemsCommand } from '@aws-sdk/client-dynamodb';
import { dynamodb } from '../../../src/engine/dynamodb/index.ts';
import type { DeadLetter, Unit } from '../../../src/queue/index.ts';
import { carelessClient, faultyClient, seededFaults } from '../../support/failing/dynamodb-faults.ts';
import { placeOf } from '../lock/ground/dynamodb.ts';
import { clock, name as me, note, plant, ready, url } from '../member/member-side.ts';
import { callbackOf, letterOf, type QueueEvent, rowOf } from './history.ts';
import type { DynamoQueuePlan, Step } from './plan.ts';
import { plantIn } from './plants.ts';
import { type Orders, openQueue, readOrders } from './queue.ts';

const { seed, leaseMs, shards }: Pick<DynamoQueuePlan, 'seed' | 'leaseMs' | 'shards'> = JSON.parse(
  process.env['PLAN'] ?? '{}',
);
const steps: Step[] = JSON.parse(readFileSync(process.env['STEPS'] ?? '', 'utf8'));
if (plant !== undefined) plantIn(plant);
const { client, table } = placeOf(url);
const engine = dynamodb(
  plant === 'conditions always hold' ? carelessClient(client) : faultyClient(client, seededFaults(seed)),
  { table, logger: { debug() {}, info() {}, warn() {}, error() {} } },
);
const queue = openQueue(engine, shards);

/** The limit of a request: on a silent network, the SDK would wait for ever. */
const ANSWER_MS = 5000;
/** Expiries of jobs, so far away that no clock of a process matters. */
const TIMES = { past: new Date('2020-01-01T00:00:00Z'), later: new Date('2090-01-01T00:00:00Z') } as const;

async function run(unit: Unit): Promise<void> {
  const { name, ms, fails } = readOrders(unit.payload);
  await takeEffect(unit, { name, ms, fails }, rowOf(name, unit.key));
}

/** A dead letter has the key of its job, and its own row of effects. */
async function readLetter(unit: Unit): Promise<void> {
  const name = letterOf(readOrders((unit.payload as DeadLetter).payload).name);
  await takeEffect(unit, { name, ms: 0, fails: 0 }, rowOf(name, null));
}

async function takeEffect(unit: Unit, { name, ms, fails }: Orders, row: string): Promise<void> {
  const isLetter = unit.kind === 'letter';
  const of = [
    ...new Set(unit.jobs.map(({ payload, id }) => JSON.stringify([isLetter ? name : readOrders(payload).name, id]))),
  ];
  const items = unit.guardItems();
  for (const job of of) {
    const [each, id] = JSON.parse(job);
    note<QueueEvent>({ do: 'begin', name: each, id, attempt: unit.attempt });
  }
  await sleep(ms);
  if (unit.attempt <= fails) throw new Error(`attempt ${unit.attempt} of ${name} fails, as it should`);
  const at = clock();
  const entries = of.map((job) => ({ S: JSON.stringify([...JSON.parse(job), at]) }));
  const update: TransactWriteItem = {
    Update: {
      TableName: table,
      Key: { pk: { S: 'effects' }, sk: { S: row } },
      UpdateExpression: 'SET #log = list_append(if_not_exists(#log, :none), :entries)',
      ExpressionAttributeNames: { '#log': 'log' },
      ExpressionAttributeValues: { ':none': { L: [] }, ':entries': { L: entries } },
    },
  };
  const checks = plant === 'the guard does nothing' ? [] : items;
  await client.send(new TransactWriteItemsCommand({ TransactItems: [...checks, update] }), {
    abortSignal: AbortSignal.timeout(ANSWER_MS),
  });
}

/** The steps that earlier processes have begun. */
function stepsDone(): { readonly from: number; readonly last: { name: string; id: string } | undefined } {
  const lines = readFileSync(process.env['FAULTS_LOG'] ?? '', 'utf8')
    .split('\n')
    .filter((line) => line.endsWith('}'));
  const events = lines.map((line): QueueEvent => JSON.parse(line));
  const asked = events.flatMap((event) => (event.do === 'ask' ? [event.nth] : []));
  const told = events.findLast((event) => event.do === 'told');
  return { from: Math.max(-1, ...asked) + 1, last: told };
}

let isStopped = false;
let { last } = stepsDone();

async function take(step: Step, nth: number): Promise<void> {
  const name = `${me}/${nth}`;
  const { key, ms, delayMs, expires, isDoomed } = step;
  const fails = isDoomed ? 1 : step.fails;
  const parent = step.isAfter && step.what === 'job' ? last : undefined;
  note<QueueEvent>({ do: 'ask', name, step, nth, after: parent?.name ?? null });
  const payload = { name, ms, fails };
  if (step.what === 'batch') {
    const batch = await queue.batch({ onDone: { kind: 'job', payload: { name: callbackOf(name), ms: 1, fails: 0 } } });
    await batch.enqueueMany(
      Array.from({ length: step.n }, (_, job) => ({
        kind: 'job' as const,
        payload: { name: `${name} member ${job}`, ms: 0, fails: 0 },
        ...(job % 7 === 0 && { key: `of batch ${job}` }),
      })),
    );
    await batch.seal();
    note<QueueEvent>({ do: 'sealed', name });
    return;
  }
  const options = {
    ...(key !== null && { key }),
    ...(step.what === 'job' && delayMs > 0 && { delay: delayMs }),
    ...(step.what === 'job' && expires !== null && { expiresAt: TIMES[expires] }),
    ...(parent !== undefined && { after: [parent.id] }),
    ...(isDoomed && { attempts: 1, onError: 'letter' }),
  };
  const { id } = await queue.enqueue(step.what, payload, options);
  note<QueueEvent>({ do: 'told', name, id });
  last = { name, id };
}

async function produce(): Promise<void> {
  const { from } = stepsDone();
  for (let nth = from; nth < steps.length && !isStopped; nth += 1) {
    const step = steps[nth];
    if (step === undefined) continue;
    await sleep(step.restMs);
    // The outcome of the step is unknown, and the checker accepts both.
    await take(step, nth).catch(() => {});
  }
  if (!isStopped) note<QueueEvent>({ do: 'finished' });
}

const worker = queue.work(
  { job: run, save: run, letter: readLetter },
  { lease: leaseMs, poll: '100ms', concurrency: 4 },
);
worker.events.on('error', () => {});
const producing = produce();
ready(async () => {
  isStopped = true;
  await Promise.all([producing, worker.stop({ timeout: '2s' })]);
});
