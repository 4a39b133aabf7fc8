import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { EmbeddedPostgres } from '../../src/engine/postgres/embedded/index.ts';
import { COMMIT } from '../support/proxy.ts';
import type { Fault } from './fault.ts';
import type { Ground, OwnDatabase } from './ground.ts';
import { Member, type MemberOptions } from './member/member.ts';
import type { Plan, Violation } from './plan.ts';

/** An answer within this time shows the other clock with an error of at most half of it. A busy machine may need more tries. */
const EXACT_MS = 8;

/** The surroundings of one schedule: a database, its client processes, and the faults that hit both. */
export class Stage implements AsyncDisposable {
  readonly plan: Plan;
  /** The planted bug of this run, if any. */
  readonly plant: string | undefined;
  /** The URL of the database, without a proxy. */
  readonly url: string;
  /** The connections of the observer. No fault is aimed at them, but a restart of the server hits them, too. */
  readonly eye: pg.Pool;
  readonly inflicted: Record<string, number> = {};
  readonly #ground: Ground;
  readonly #database: OwnDatabase;
  /** A folder for files of the schedule; removed with it. */
  readonly folder: string;
  readonly #members: Member[] = [];
  readonly #others: OwnDatabase[] = [];

  static async open(ground: Ground, plan: Plan, plant?: string): Promise<Stage> {
    const folder = await mkdtemp(join(ground.folder, `seed-${plan.seed}-`));
    return new Stage(ground, plan, await ground.database(plan.hasOwnServer), folder, plant);
  }

  private constructor(ground: Ground, plan: Plan, database: OwnDatabase, folder: string, plant: string | undefined) {
    this.plan = plan;
    this.plant = plant;
    this.url = database.url;
    this.eye = new pg.Pool({ connectionString: database.url, max: 3, application_name: 'eye' }).on('error', () => {});
    this.#ground = ground;
    this.#database = database;
    this.folder = folder;
  }

  /** The server of the database. */
  get server(): EmbeddedPostgres {
    return this.#database.server;
  }

  /** One more database for this schedule, removed with it. @param isStranger  on a server with an identity of its own */
  async another({ isStranger = false }: { isStranger?: boolean } = {}): Promise<OwnDatabase> {
    const database = await (isStranger ? this.#ground.stranger() : this.#ground.database(false));
    this.#others.push(database);
    return database;
  }

  /** Starts processes; they are ready when this resolves. Their indexes follow those of the processes that were started before. */
  async start(options: readonly MemberOptions[]): Promise<Member[]> {
    const { url, plant, folder } = this;
    const home = { ground: this.#ground, folder, url, plant };
    const members = await Promise.all(options.map((one) => Member.start(one, home)));
    this.#members.push(...members);
    return members;
  }

  /** Inflicts the plan's faults, each at its time from now on. When this resolves, the network works again. */
  async inflict(): Promise<void> {
    await Promise.all(this.plan.faults.map((fault) => sleep(fault.at).then(() => this.#inflictOne(fault))));
    for (const { proxy } of this.#members) {
      proxy.accept();
      proxy.thaw();
    }
  }

  /** Processes that ended by themselves. */
  get crashes(): Violation[] {
    const all = this.#members.flatMap(({ name, crashes }) => crashes.map((story) => ({ name, story })));
    return all.map(({ name, story }) => ({ rule: 'a process ended by itself', about: name, story: [story] }));
  }

  /** For a schedule that does not end: the state of each of its processes. */
  async describe(): Promise<string[]> {
    return (await Promise.all(this.#members.map((member) => member.describe()))).flat();
  }

  /** By how much the database's wall clock is ahead of the clock of the notes, in milliseconds. */
  async clockOffset(): Promise<number> {
    const samples: { took: number; offset: number }[] = [];
    const isExact = (): boolean => samples.some(({ took }) => took < EXACT_MS);
    for (let n = 0; n < 5 || (n < 200 && !isExact()); n += 1) {
      const before = monotonic();
      const { rows } = await this.eye.query<{ ms: number }>(
        'select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms',
      );
      const after = monotonic();
      samples.push({ took: after - before, offset: (rows[0]?.ms ?? 0) - (before + after) / 2 });
    }
    return samples.reduce((best, sample) => (sample.took < best.took ? sample : best)).offset;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#members.map((member) => member.end()));
    await this.eye.end();
    await Promise.all([this.#database, ...this.#others].map((database) => database.drop()));
    await rm(this.folder, { recursive: true, force: true });
  }

  async #inflictOne({ do: name, whom, ms }: Fault): Promise<void> {
    const member = this.#members[whom % this.#members.length];
    if (member === undefined) throw new Error(`the plan's fault "${name}" hits nothing: no process was started`);
    this.inflicted[name] = (this.inflicted[name] ?? 0) + 1;
    const { proxy } = member;
    switch (name) {
      case 'kill':
        return member.kill(ms);
      case 'deploy':
        return member.tell({ stop: true });
      case 'stop':
        return member.stand(ms);
      case 'clock':
        return member.tell({ stepClock: ms });
      case 'block':
        return member.tell({ block: ms });
      case 'terminate':
        return this.#terminate(member);
      case 'restart':
        return this.#database.server.restart('immediate');
      case 'reset':
        return proxy.cut();
      case 'refuse':
        proxy.refuse();
        return sleep(ms).then(() => proxy.accept());
      case 'silence':
        proxy.silence();
        return sleep(ms).then(() => proxy.accept());
      case 'deafen':
        return proxy.deafen();
      case 'freeze':
        proxy.freeze();
        return sleep(ms).then(() => proxy.thaw());
      case 'lose':
        return proxy.loseAnswerTo(COMMIT, 3);
    }
  }

  /** Terminates every second server process of this member. */
  async #terminate({ name }: Member): Promise<void> {
    // While the server starts again, there is nothing to end.
    await this.eye
      .query(
        `select pg_terminate_backend(pid) from (
           select pid, row_number() over (order by pid) as nth from pg_stat_activity
           where datname = current_database() and application_name = $1) a where nth % 2 = 1`,
        [name],
      )
      .catch(() => this.#miss('terminate'));
  }

  #miss(name: string): void {
    this.inflicted[name] = (this.inflicted[name] ?? 0) - 1;
  }
}

/** The same clock as the members' `clock()`. */
export function monotonic(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000;
}
