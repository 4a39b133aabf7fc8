import pg from 'pg';
import { expect, onTestFinished } from 'vitest';
import { type PostgresEngine, type PostgresOptions, postgres } from '../../src/engine/postgres/index.ts';
import { createQueue, type Queue, type Worker, type WorkOptions } from '../../src/queue/index.ts';
import { freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { recordLog } from '../support/log.ts';
import { type Child, spawnChild } from '../support/process.ts';
import { type Proxy, startProxy } from '../support/proxy.ts';
import { awakeMs } from '../support/time/awake.ts';
import { breaches, places } from './invariants.ts';
import { SqlSession } from './sql-session.ts';

/** Instructions in a payload for the handler of worker.child.ts. */
export interface Orders {
  readonly ms?: number;
  readonly dies?: boolean;
  /** Its process pauses itself with SIGSTOP until it gets SIGCONT. */
  readonly stops?: boolean;
  readonly guards?: boolean;
}

/** A kind with many attempts; the child process declares it, too. */
export const WEARY = { attempts: 1000 } as const;

/** The declaration of the fault tests' queue in every process. */
export const FAULTS = {
  kinds: { job: {}, fragile: { attempts: 2 } },
  retry: { attempts: 8, backoff: { kind: 'fixed', min: 1 } },
} as const;

export type FaultQueue = Queue<typeof FAULTS.kinds>;
export const HOLDS = ['lease', 'transaction'] as const;
export type Hold = (typeof HOLDS)[number];

/** A scene in a database of its own. */
export async function openScene(): Promise<Scene> {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  return Scene.open(database.url);
}

/** Expects that every job took effect once; it may have run more often. */
export async function expectOneEffectEach(scene: Scene, hold: Hold, jobs: number): Promise<void> {
  expect(await scene.breaches()).toEqual([]);
  expect(await scene.one('select count(distinct id)::int from test_run')).toBe(jobs);
  if (hold !== 'transaction') return;
  expect(await scene.one('select count(*)::int from test_effect')).toBe(jobs);
  expect(await scene.one('select count(distinct id)::int from test_effect')).toBe(jobs);
}

/** Puts a proxy that can fail in front of the scene's database. */
export async function proxied(scene: Scene): Promise<{ proxy: Proxy; options: { url: string } }> {
  const proxy = await startProxy(scene.url);
  onTestFinished(() => proxy.stop());
  return { proxy, options: { url: proxy.url } };
}

/** A database with the queue of the fault tests, and helpers that observe it. */
export class Scene {
  readonly url: string;
  readonly queue: FaultQueue;
  readonly eye: SqlSession;
  readonly engine: PostgresEngine;
  readonly #notes: pg.Pool;

  static async open(url: string): Promise<Scene> {
    const eye = await SqlSession.open(url);
    await eye.client.query(`
      create table if not exists test_run (
        at bigint generated always as identity, id bigint, pid int, attempt int, token bigint, ran_at timestamptz default clock_timestamp());
      create table if not exists test_effect (id bigint)`);
    const scene = new Scene(url, eye);
    await scene.queue.register();
    onTestFinished(async () => {
      await scene.engine.stop();
      await scene.#notes.end();
      await eye.end().catch(() => {});
    });
    return scene;
  }

  private constructor(url: string, eye: SqlSession) {
    this.url = url;
    this.eye = eye;
    this.#notes = new pg.Pool({ connectionString: url, max: 4 });
    this.#notes.on('error', () => {});
    this.engine = postgres(url, { max: 4, logger: recordLog() });
    this.queue = createQueue(this.engine, 'faults', FAULTS);
  }

  /** Keys k0…k7 with five jobs each, and as many jobs without a key. */
  enqueue(n = 40, orders: Orders = {}): Promise<string[]> {
    const jobs = Array.from({ length: n * 2 }, (_, index) => ({
      kind: 'job' as const,
      payload: orders,
      ...(index % 2 === 0 ? { key: `k${(index / 2) % 8}` } : {}),
    }));
    return this.queue.enqueueMany(jobs);
  }

  /** Starts a worker process; it is ready when this resolves, unless a fault hits it before. */
  async child(hold: Hold, env: NodeJS.ProcessEnv = {}): Promise<Child> {
    const child = spawnChild('queue/worker.child.ts', [], { URL: this.url, HOLD: hold, ...env });
    await child.message();
    return child;
  }

  /** Starts a worker in this process that notes its runs, like worker.child.ts. */
  async worker(
    hold: Hold,
    options: WorkOptions = {},
    { url = this.url, ...engineOptions }: PostgresOptions & { url?: string } = {},
  ): Promise<Worker> {
    const engine = postgres(url, { max: 12, logger: recordLog(), ...engineOptions });
    const worker = createQueue(engine, 'faults', FAULTS).work(
      {
        job: async (unit) => {
          const run = [Number(unit.job.id), process.pid, unit.attempt, unit.token.toString()];
          await this.#notes.query('insert into test_run (id, pid, attempt, token) values ($1, $2, $3, $4)', run);
          if (hold === 'transaction') {
            const values = [Number(unit.job.id)];
            await unit.tx.client.query({ text: 'insert into test_effect (id) values ($1)', values });
          }
        },
        fragile: () => {},
      },
      { hold, lease: '2s', poll: '200ms', concurrency: 4, ...options },
    );
    onTestFinished(async () => {
      await worker.stop({ timeout: '1s' });
      await engine.stop();
    });
    await worker.started;
    return worker;
  }

  /** Waits until every job is complete. @returns how many milliseconds that took */
  async drained(timeoutMs = 50_000): Promise<number> {
    const since = awakeMs();
    const { queue } = await this.row();
    await until(
      'every job is complete',
      async () => {
        const { complete = 0, ...left } = await places(this.eye.client, queue);
        return complete > 0 && Object.keys(left).length === 0;
      },
      timeoutMs,
    ).catch(async (error: Error) => {
      throw new Error(`${error.message}; there is ${JSON.stringify(await places(this.eye.client, queue))}`);
    });
    return awakeMs() - since;
  }

  async row(): Promise<{ queue: number }> {
    return { queue: await this.eye.one<number>("select id::int from pawl.queue_definition where name = 'faults'") };
  }

  breaches(): Promise<string[]> {
    return breaches(this.eye.client);
  }

  /** Jobs of a key whose last run was not after the last runs of all jobs before them. */
  async disorder(): Promise<string[]> {
    const { rows } = await this.eye.client.query<{ wrong: string }>(`
      with last as (
        select j.key, r.id, max(r.at) as at from test_run r join pawl.queue_job j on j.id = r.id where j.key is not null group by 1, 2
      )
      select format('job %s of key %s ran before job %s was over', b.id, b.key, a.id) as wrong
      from last a join last b on b.key = a.key and b.id > a.id and b.at < a.at`);
    return rows.map(({ wrong }) => wrong);
  }

  /** Waits until the handler of a job runs, and a rescue would know: what a transaction holds is noted a moment after its begin. */
  async begins(id: string | number): Promise<void> {
    const known = `select exists (select from test_run where id = $1::bigint) and (
      exists (select from pawl.queue_running where ids @> $1::bigint)
      or exists (select from pawl.queue_worker where $1::bigint = any (holding)))`;
    await until(`job ${id} is known to run`, () => this.one<boolean>(known, [id]));
  }

  /** The attempts, effects and transition reasons of a job. */
  async runs(id: string | number): Promise<{ attempts: number[]; effects: number; reasons: string[] }> {
    const { rows } = await this.eye.client.query(
      `select array(select attempt from test_run where id = $1 order by at) as attempts,
        (select count(*)::int from test_effect where id = $1) as effects,
        array(select reason from pawl.queue_transitions(0::smallint, $1) order by at) as reasons`,
      [id],
    );
    return rows[0];
  }

  one<T>(text: string, values: unknown[] = []): Promise<T> {
    return this.eye.one(text, values);
  }
}
