import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { createActors } from '../../../src/actor/index.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import type { Member, Note } from '../member/member.ts';
import { PATIENCE_MS, Patience, untilDone } from '../patience.ts';
import type { Complaint } from '../queue/history.ts';
import { readLocks } from '../queue/read.ts';
import type { Stage } from '../stage.ts';
import { declare } from './declaration.ts';
import type { ActorHistory, ActorRequest, ProducerEvent, WorkerEvent } from './history.ts';
import type { ActorPlan, Operation } from './plan.ts';
import { plantInDatabase } from './plants.ts';
import { readTables } from './read.ts';

/** The limit with a planted bug: then an actor that does not end is the expected violation. */
const PLANTED_MS = 8_000;

/** Plays the plan. @returns its history */
export async function playActors(plan: ActorPlan, stage: Stage): Promise<ActorHistory> {
  const counters = await prepare(plan, stage);
  const workers = await startWorkers(plan, stage);
  const producers = await startProducers(plan, stage, counters);
  await stage.inflict();
  await untilDone(producers, 'producers');
  const stopped = await stop(producers);
  const drained = await drain(stage.eye, counters, stage.plant === undefined ? PATIENCE_MS : PLANTED_MS);
  const complaints = [...stopped, ...drained, ...(await stop(workers))];
  const events = (await Promise.all(workers.map((member) => member.events<WorkerEvent>()))).flat();
  const asked = await Promise.all(producers.map((member) => member.events<ProducerEvent>()));
  const tables = await readTables(stage.eye);
  return { ...readNotes(events), ...readAsked(plan, counters, asked, tables.rows), ...tables.history, complaints };
}

function startWorkers({ workers, leaseMs }: ActorPlan, stage: Stage): Promise<Member[]> {
  return stage.start(
    workers.map(({ concurrency }, index) => ({
      script: 'faults/actor/worker.child.ts',
      name: `worker-${index}`,
      env: { LEASE: String(leaseMs), CONCURRENCY: String(concurrency) },
    })),
  );
}

async function startProducers({ producers }: ActorPlan, stage: Stage, counters: readonly string[]): Promise<Member[]> {
  const all = producers.map(async (operations, index) => {
    const path = join(stage.folder, `operations-${index}.json`);
    await writeFile(path, JSON.stringify(operations));
    const env = { OPERATIONS: path, COUNTERS: JSON.stringify(counters), PRODUCER: String(index) };
    return { script: 'faults/actor/producer.child.ts', name: `producer-${index}`, env };
  });
  return stage.start(await Promise.all(all));
}

async function prepare(plan: ActorPlan, stage: Stage): Promise<string[]> {
  await stage.eye.query(`
    create table faults_effect (actor bigint not null, epoch bigint not null, state text not null, kind text not null, n bigint not null);
    create table faults_asked (producer int not null, operation int not null, id text not null)`);
  await using engine = postgres(stage.url, { max: 2 });
  const nothing = async (): Promise<void> => {};
  const types = declare({ begin: nothing, atCommit() {}, guarded: nothing, once: nothing, ending() {} });
  const actors = createActors(engine, types);
  const ids: string[] = [];
  for (let n = 0; n < plan.counters; n += 1) ids.push((await actors.create(types[2], {})).id);
  if (stage.plant !== undefined) await plantInDatabase(stage.plant, stage.eye);
  return ids;
}

/** Lets the counters finish, and resumes actors that were held after losses, as an operator would, until all are final. */
async function drain(eye: pg.Pool, counters: readonly string[], patienceMs: number): Promise<Complaint[]> {
  for (const actor of counters) {
    await eye.query('select pawl.actor_incr($1)', [JSON.stringify({ actor, semaphore: 'finish' })]);
  }
  let left: string[] = [];
  for (const patience = new Patience(patienceMs); patience.isLeft; await sleep(100)) {
    await eye.query(
      `select pawl.actor_pause(json_build_object('actor', a.id, 'resume', true)) from pawl.actor_instance a where a.lost >= 3`,
    );
    const { rows } = await eye.query<{ told: string; count: number }>(
      `select count(*) over ()::int as count, format('%s %s is %s in %s, turn %s, attempt %s, lost %s, worker %s, claimed %s ago: %s', v.id, v.type, v.status, v.state, a.epoch, a.attempt,
         a.lost, coalesce(a.worker, a.tx_worker), clock_timestamp() - a.claimed_at, left(v.error, 200)) as told
       from pawl.actor v join pawl.actor_instance a on a.id = v.id where v.status <> 'final' order by v.id limit 20`,
    );
    left = rows.map(({ told }) => told);
    if (left.length === 0) return [];
    patience.seeLeft(rows[0]?.count ?? 0);
  }
  return [
    {
      rule: 'all are final in the end',
      about: `${left.length} or more are not`,
      story: [...left, ...(await readLocks(eye))],
    },
  ];
}

async function stop(members: readonly Member[]): Promise<Complaint[]> {
  const told = await Promise.all(members.map((member) => member.stop()));
  return told.flatMap((story, index) =>
    story === undefined
      ? []
      : [{ rule: 'a process stops when it is told to', about: members[index]?.name ?? '', story: [story] }],
  );
}

function readNotes(events: readonly Note<WorkerEvent>[]): Pick<ActorHistory, 'begun' | 'endings' | 'onces'> {
  const begun = events.flatMap((event) => (event.do === 'begin' ? [event] : []));
  const endings = events.flatMap((event) => (event.do === 'ending' ? [event] : []));
  const onces = events.flatMap((event) =>
    event.do === 'once ran' || event.do === 'once kept'
      ? [{ ...event, how: event.do === 'once ran' ? ('ran' as const) : ('kept' as const) }]
      : [],
  );
  return { begun, endings, onces };
}

/** A request in a transaction is known by its row, a request alone by its answer, if there was one. */
function readAsked(
  { producers }: ActorPlan,
  counters: readonly string[],
  events: readonly (readonly Note<ProducerEvent>[])[],
  rows: readonly { readonly producer: number; readonly operation: number; readonly id: string }[],
): Pick<ActorHistory, 'asked' | 'orders'> {
  const asked: ActorRequest[] = [];
  const orders: string[] = [];
  const one = (producer: number, at: number, operation: Operation): void => {
    const mine = events[producer] ?? [];
    const told = mine.flatMap((event) => (event.do === 'told' && event.operation === at ? [event] : []))[0];
    const row = rows.find((each) => each.producer === producer && each.operation === at);
    const isAlone = operation.how === 'alone';
    const isAsked = mine.some((event) => event.do === 'ask' && event.operation === at);
    const isCertain = isAlone ? told !== undefined : row !== undefined;
    if (!isCertain && !(isAlone && isAsked)) return;
    if (operation.what === 'create') {
      if (isCertain) orders.push(told?.id ?? row?.id ?? '');
      return;
    }
    const actor = counters[operation.counter] ?? '';
    asked.push({ actor, what: operation.what, n: operation.orders.n, isCertain });
  };
  for (const [producer, operations] of producers.entries()) {
    for (const [at, operation] of operations.entries()) one(producer, at, operation);
  }
  return { asked, orders };
}
