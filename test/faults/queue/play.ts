import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { breaches, places } from '../../queue/invariants.ts';
import type { Member } from '../member/member.ts';
import { PATIENCE_MS, Patience, untilDone } from '../patience.ts';
import type { Stage } from '../stage.ts';
import {
  type Complaint,
  type ProducerEvent,
  type QueueHistory,
  toChanges,
  toRequests,
  toRuns,
  type WorkerEvent,
} from './history.ts';
import type { QueuePlan } from './plan.ts';
import { plantInDatabase } from './plants.ts';
import { LOG, readEffects, readJobs, readLeftovers, readLocks, readMoves } from './read.ts';

/** The interval between checks of the invariants during the faults. */
const SAMPLE_MS = 700;

/** Plays the plan. @returns its history */
export async function playQueue(plan: QueuePlan, stage: Stage): Promise<QueueHistory> {
  await stage.eye.query(LOG);
  if (stage.plant !== undefined) await plantInDatabase(stage.plant, stage.eye);
  const before = await stage.clockOffset();
  const { workers, producers } = await startMembers(plan, stage);
  const sampler = new Sampler(stage.url, producers);
  await stage.inflict();
  await untilDone(producers, 'producers');
  // A producer on a silent network has given up, but the server does not know it: its transaction would hold its key for hours.
  for (const { proxy } of producers) proxy.cut();
  const retired = await retireOld(plan, workers);
  const drained = await drain(stage.eye, sampler, workers);
  const complaints = [...(await sampler.stop()), ...retired, ...drained, ...(await stop([...workers, ...producers]))];
  if (drained.length === 0) complaints.push(...(await leftovers(stage)));
  const after = await stage.clockOffset();
  const offset = (before + after) / 2;
  const requests = await Promise.all(producers.map((member) => member.events<ProducerEvent>()));
  const runs = await Promise.all(workers.map((member) => member.events<WorkerEvent>()));
  return {
    requests: toRequests(requests.flat()),
    runs: toRuns([...runs.flat(), ...requests.flat()], offset),
    changes: toChanges(requests.flat()),
    ...(await readTables(stage.eye, offset)),
    clockErrorMs: Math.abs(after - before) + 5,
    hasRate: plan.hasRate,
    perTenant: plan.perTenant,
    complaints,
  };
}

/** Starts all members at once. The order of this list decides which member a fault hits. */
async function startMembers(plan: QueuePlan, stage: Stage): Promise<{ workers: Member[]; producers: Member[] }> {
  const { shards, leaseMs, isRelated, hasBatches, hasRate, perTenant, hasLedger } = plan;
  const env = { PLAN: JSON.stringify({ shards, leaseMs, isRelated, hasBatches, hasRate, perTenant, hasLedger }) };
  const workers = plan.workers.map((worker, index) => ({
    script: 'faults/queue/worker.child.ts',
    name: `worker-${index}`,
    env: { ...env, WORKER: JSON.stringify(worker) },
  }));
  const producers = plan.producers.map((_, index) => ({
    script: 'faults/queue/producer.child.ts',
    name: `producer-${index}`,
    env: { ...env, PRODUCER: String(index), OPERATIONS: join(stage.folder, `operations-${index}.json`) },
  }));
  for (const [index, { env }] of producers.entries()) {
    await writeFile(env.OPERATIONS, JSON.stringify(plan.producers[index]));
  }
  const members = await stage.start([...workers, ...producers]);
  return { workers: members.slice(0, workers.length), producers: members.slice(workers.length) };
}

/** Completes the deployment: old workers end, and jobs that only newer workers know run there. */
async function retireOld({ workers }: QueuePlan, members: readonly Member[]): Promise<Complaint[]> {
  const old = members.filter((_, index) => workers[index]?.version === 1);
  return old.length < members.length ? stop(old) : [];
}

async function drain(eye: pg.Pool, sampler: Sampler, workers: readonly Member[]): Promise<Complaint[]> {
  const client = await eye.connect();
  try {
    let left: Record<string, number> = {};
    const patience = new Patience();
    for (; patience.isLeft && !sampler.hasFound; await sleep(100)) {
      const { complete = 0, dead = 0, ...others } = await allPlaces(client);
      left = others;
      if (Object.keys(left).length === 0) return [];
      patience.see(complete + dead);
    }
    const about = `${JSON.stringify(left)}, and nothing was done for ${PATIENCE_MS} ms`;
    return [
      {
        rule: 'everything is done in the end',
        about,
        story: [...(await readLocks(eye)), ...workers.flatMap((worker) => worker.lastWords())],
      },
    ];
  } finally {
    client.release();
  }
}

/** The numbers of jobs of all queues in each place, and of stopped keys. */
async function allPlaces(client: pg.PoolClient): Promise<Record<string, number>> {
  const { rows } = await client.query<{ id: number }>('select id::int from pawl.queue_definition');
  const { rows: blocked } = await client.query<{ n: number }>('select count(*)::int as n from pawl.queue_blocked');
  const stopped = blocked[0]?.n ?? 0;
  const sum: Record<string, number> = stopped === 0 ? {} : { 'keys that stop': stopped };
  for (const { id } of rows) {
    for (const [place, n] of Object.entries(await places(client, id))) sum[place] = (sum[place] ?? 0) + n;
  }
  return sum;
}

async function stop(members: readonly Member[]): Promise<Complaint[]> {
  const complaints = await Promise.all(members.map((member) => member.stop()));
  return complaints.flatMap((story, index) =>
    story === undefined
      ? []
      : [{ rule: 'a process stops when it is told to', about: members[index]?.name ?? '', story: [story] }],
  );
}

/** When all workers have stopped, nothing may be held. Sessions that the network hid from the server end a little later. */
async function leftovers({ eye }: Stage): Promise<Complaint[]> {
  let left: string[] = [];
  for (const since = performance.now(); performance.now() - since < 30_000; await sleep(200)) {
    left = await readLeftovers(eye);
    if (left.length === 0) return [];
  }
  return [{ rule: 'nothing is left behind', about: left.join('; '), story: await readLocks(eye) }];
}

async function readTables(eye: pg.Pool, offset: number): Promise<Pick<QueueHistory, 'jobs' | 'moves' | 'effects'>> {
  const client = await eye.connect();
  try {
    await client.query('begin isolation level repeatable read read only');
    const tables = {
      jobs: await readJobs(client, offset),
      moves: await readMoves(client, offset),
      effects: await readEffects(client, offset),
    };
    await client.query('commit');
    return tables;
  } finally {
    client.release();
  }
}

/** Checks the invariants of the committed state at intervals. */
class Sampler {
  readonly #url: string;
  readonly #found: Complaint[] = [];
  #isOver = false;
  readonly #looking: Promise<void>;
  readonly #producers: readonly Member[];

  constructor(url: string, producers: readonly Member[]) {
    this.#url = url;
    this.#producers = producers;
    this.#looking = this.#look();
  }

  /** A broken schedule may never end, so its wait stops. */
  get hasFound(): boolean {
    return this.#found.length > 0;
  }

  /** Checks once more. @returns all violations */
  async stop(): Promise<Complaint[]> {
    this.#isOver = true;
    await this.#looking;
    return this.#found;
  }

  async #look(): Promise<void> {
    // One long-lived connection: the statement is large, and is planned once.
    const eye = new pg.Pool({ connectionString: this.#url, application_name: 'eye', max: 1 }).on('error', () => {});
    // If the server restarts during a check, the pool has no listener for the error.
    eye.on('connect', (client) => client.on('error', () => {}));
    for (let isLast = false; !isLast && this.#found.length === 0; await sleep(isLast ? 0 : SAMPLE_MS)) {
      isLast = this.#isOver;
      const client = await eye.connect().catch(() => undefined);
      try {
        const found = client === undefined ? [] : await this.#withoutErased(await breaches(client));
        if (found.length > 0)
          this.#found.push({
            rule: 'every job is in one place',
            about: found[0] ?? '',
            story: [...found, ...(client === undefined ? [] : await rowsOf(client, found))],
          });
        client?.release();
      } catch {
        // The server restarts; the next check follows.
        client?.release(true);
      }
    }
    await eye.end();
  }

  /** A job that is complete leaves its id in a receipt when it is erased. */
  async #withoutErased(found: readonly string[]): Promise<string[]> {
    if (found.length === 0) return [];
    const events = (await Promise.all(this.#producers.map((member) => member.events<ProducerEvent>()))).flat();
    const erased = new Set(
      events.flatMap((event) => (event.do === 'hand' && event.hand.do === 'erase' ? [event.id] : [])),
    );
    return found.filter(
      (breach) => !erased.has(/^complete holds job (\d+), which was never enqueued$/.exec(breach)?.[1]),
    );
  }
}

const PLACES = ['job', 'ready', 'delayed', 'parked', 'grouped', 'running', 'transition', 'dead', 'receipt'];

/** The rows of the jobs, and of the keys, that breaches name, each with the time of the commit that wrote it. */
async function rowsOf(client: pg.PoolClient, breaches: readonly string[]): Promise<string[]> {
  const ids = breaches.flatMap((breach) => /\bjob (\d+)/.exec(breach)?.[1] ?? []);
  const keys = breaches.flatMap((breach) => /\bkey (\S+)/.exec(breach)?.[1] ?? []);
  const found: string[] = [];
  for (const place of PLACES) {
    const isOfJob = place === 'running' || place === 'receipt' ? 't.ids @> j.id' : 't.id = j.id';
    const { rows } = await client.query<{ line: string }>(
      `select concat('${place} ', pg_xact_commit_timestamp(t.xmin), ' ', left(row_to_json(t)::text, 600)) as line
       from pawl.queue_job j join pawl.queue_${place} t on ${isOfJob}
       where j.id = any ($1) or j.key = any ($2) order by j.id, pg_xact_commit_timestamp(t.xmin)`,
      [ids, keys],
    );
    found.push(...rows.map(({ line }) => line));
  }
  const { rows } = await client.query<{ line: string }>(
    `select concat('key ', pg_xact_commit_timestamp(k.xmin), ' ', row_to_json(k)) as line
     from pawl.queue_key k where k.key = any ($1) or k.key in (select j.key from pawl.queue_job j where j.id = any ($2))`,
    [keys, ids],
  );
  return [...found, ...rows.map(({ line }) => line)];
}
