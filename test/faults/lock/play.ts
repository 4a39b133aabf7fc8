import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createLocks, type Locks } from '../../../src/lock/index.ts';
import type { Member, Note } from '../member/member.ts';
import { Patience } from '../patience.ts';
import { monotonic, type Stage } from '../stage.ts';
import { placeOf, readWritten } from './ground/dynamodb.ts';
import { makeTables } from './ground/postgres.ts';
import { type ClientEvent, type Complaint, type LockHistory, type Sighting, toOperations } from './history.ts';
import { borrowLocal } from './local.ts';
import type { LockPlan } from './plan.ts';
import { plantInDatabase } from './plants.ts';
import { readDecisions, readEnded, readPostgresWritten } from './read.ts';

/** The longest time without the end of an operation: a busy machine is slow, but a stuck schedule must end. */
const PATIENCE_MS = 60_000;
const SAMPLE_MS = 250;
/** With a store that is slower than this, a lease of a second is not safe. */
const SLOW_MS = 250;
/** Faults that change only the wall clock of a process. */
const HARMLESS = new Set(['clock']);

/** The observer's access to the locks of a schedule. */
interface Eye {
  readonly locks: Locks;
  readonly before: string | undefined;
  readonly read: (
    operations: LockHistory['operations'],
  ) => Promise<Pick<LockHistory, 'written' | 'decisions' | 'ended' | 'clockErrorMs'>>;
  readonly close: () => Promise<void>;
}

/** Plays the plan on Postgres, which records all decisions. */
export async function playOnPostgres(plan: LockPlan, stage: Stage): Promise<LockHistory> {
  await makeTables(stage.eye);
  if (stage.plant !== undefined) await plantInDatabase(stage.plant, stage.eye);
  const engine = postgres(stage.url, {
    max: 2,
    listen: false,
    logger: { debug() {}, info() {}, warn() {}, error() {} },
  });
  const before = await stage.clockOffset();
  return play(plan, stage, {
    locks: createLocks(engine),
    before: undefined,
    read: async () => {
      const after = await stage.clockOffset();
      const offset = (before + after) / 2;
      return {
        written: await readPostgresWritten(stage.eye, offset),
        decisions: await readDecisions(stage.eye, offset),
        ended: await readEnded(stage.eye, offset),
        clockErrorMs: Math.abs(after - before) + 5,
      };
    },
    close: () => engine.stop(),
  });
}

/** Plays the plan on a table of its own. Only the clients show the decisions of the table. */
export function playOnDynamo(endpoint?: () => Promise<string>): (plan: LockPlan, stage: Stage) => Promise<LockHistory> {
  return async (plan, stage) => {
    const given = await endpoint?.();
    await using local =
      given === undefined ? await borrowLocal() : { endpoint: given, [Symbol.asyncDispose]: async () => {} };
    const before = `${local.endpoint}/faults-${plan.seed}-${process.pid}-${Math.random().toString(36).slice(2)}`;
    const place = placeOf(before);
    const engine = dynamodb(place.client, { table: place.table });
    await engine.migrate();
    return await play(plan, stage, {
      locks: createLocks(engine),
      before,
      read: async (operations) => {
        const names = [...new Set(operations.flatMap(({ step }) => step.names))];
        const written = await Promise.all(names.map((name) => readWritten(place, name)));
        return { written: written.flat(), decisions: [], ended: [], clockErrorMs: 0 };
      },
      close: async () => place.client.destroy(),
    });
  };
}

async function play(plan: LockPlan, stage: Stage, eye: Eye): Promise<LockHistory> {
  const members = await startMembers(plan, stage, eye.before);
  const sampler = new Sampler(eye.locks);
  await stage.inflict();
  const complaints = await drained(plan, members);
  // Before the observer takes locks itself.
  const sightings = await sampler.stop();
  complaints.push(...(await left(eye.locks, plan.engine)));
  for (const member of members) {
    const story = await member.stop();
    if (story !== undefined)
      complaints.push({ rule: 'a process stops when it is told to', about: member.name, story: [story] });
  }
  const events = (await Promise.all(members.map((member) => member.events<ClientEvent>()))).flat();
  const operations = toOperations(events);
  const read = await eye.read(operations);
  await eye.close();
  const wasRestarted = plan.faults.some((fault) => fault.do === 'restart');
  const calm = sampler.slowestMs > SLOW_MS ? new Set<string>() : calmIn(plan, events, members);
  return { engine: plan.engine, operations, ...read, sightings, calm, wasRestarted, complaints };
}

async function startMembers(plan: LockPlan, stage: Stage, before: string | undefined): Promise<Member[]> {
  const { engine, waiterMs, seed } = plan;
  const options = plan.clients.map((_, index) => ({
    script: 'faults/lock/client.child.ts',
    name: `client-${index}`,
    ...(before === undefined ? {} : { before }),
    env: {
      PLAN: JSON.stringify({ engine, waiterMs, seed: seed * 31 + index }),
      THREADS: join(stage.folder, `threads-${index}.json`),
    },
  }));
  for (const [index, { env }] of options.entries()) await writeFile(env.THREADS, JSON.stringify(plan.clients[index]));
  return stage.start(options);
}

/** Waits until every thread has done all its steps. */
async function drained({ clients }: LockPlan, members: readonly Member[]): Promise<Complaint[]> {
  let waiting: string[] = [];
  for (const patience = new Patience(PATIENCE_MS); patience.isLeft; await sleep(200)) {
    waiting = [];
    let seen = 0;
    for (const [index, member] of members.entries()) {
      const events = await member.events<ClientEvent>();
      seen += events.filter((event) => event.do === 'ended').length;
      const done = new Set(events.flatMap((event) => (event.do === 'done' ? [event.thread] : [])));
      if (done.size < (clients[index]?.length ?? 0)) waiting.push(member.name);
    }
    if (waiting.length === 0) return [];
    patience.see(seen);
  }
  const story = members.flatMap((member) => member.lastWords());
  return [{ rule: 'everything is done in the end', about: waiting.join(', '), story }];
}

/** Locks of killed processes end with their leases. No other lock or place may be left. */
async function left(locks: Locks, engine: LockPlan['engine']): Promise<Complaint[]> {
  let story: string[] = [];
  if (engine === 'dynamodb') await lookAtWaiters(locks);
  for (const since = performance.now(); performance.now() - since < 30_000; await sleep(200)) {
    const { held, waiting } = await locks.query();
    // DynamoDB keeps the row of a dead holder until another client checks it.
    const living = held.filter(({ leaseLeftMs }) => leaseLeftMs === null || leaseLeftMs > 0);
    if (living.length + waiting.length === 0) return [];
    story = [...living, ...waiting].map((each) =>
      JSON.stringify(each, (_, value) => (typeof value === 'bigint' ? String(value) : value)),
    );
  }
  return [{ rule: 'nothing is left behind', about: `${story.length}`, story }];
}

/**
 * DynamoDB keeps the place of a killed waiter until the next waiter of that name sees no sign of life from it. If all clients are
 * done, the observer is this next waiter.
 */
async function lookAtWaiters(locks: Locks): Promise<void> {
  const { waiting } = await locks.query();
  const seen = new Set<string>();
  for (const { name, mode, permits } of waiting) {
    if (seen.has(name)) continue;
    seen.add(name);
    const wait = { wait: '20s' } as const;
    const lock =
      mode === 'permit' ? locks.semaphore(name, { permits: permits ?? 1 }).acquire(wait) : locks.acquire(name, wait);
    await lock.then((held) => held.release());
  }
}

function calmIn(
  { faults, clients }: LockPlan,
  events: readonly Note<ClientEvent>[],
  members: readonly Member[],
): Set<string> {
  const hit = faults.filter((fault) => !HARMLESS.has(fault.do)).map(({ whom }) => members[whom % clients.length]?.name);
  const still = events.filter((event) => event.do === 'lag').map(({ member }) => member);
  const restless = new Set([...hit, ...still]);
  return new Set(members.map(({ name }) => name).filter((name) => !restless.has(name)));
}

/** Records the waiters at intervals. */
class Sampler {
  readonly #locks: Locks;
  readonly #seen: Sighting[] = [];
  #isOver = false;
  /** The duration of the slowest query. */
  slowestMs = 0;
  readonly #looking: Promise<void>;

  constructor(locks: Locks) {
    this.#locks = locks;
    this.#looking = this.#look();
  }

  async stop(): Promise<Sighting[]> {
    this.#isOver = true;
    await this.#looking;
    return this.#seen;
  }

  async #look(): Promise<void> {
    for (; !this.#isOver; await sleep(SAMPLE_MS)) {
      // While the server restarts, the query fails.
      const askedAt = monotonic();
      const snapshot = await this.#locks.query().catch(() => undefined);
      const at = monotonic();
      this.slowestMs = Math.max(this.slowestMs, at - askedAt);
      for (const { name, pid } of snapshot?.waiting ?? []) this.#seen.push({ at, name, pid });
    }
  }
}
