import { breaches, places } from './invariants.ts';
import type { ClaimedJob, KindRow, QueueRow, SqlSession } from './sql-session.ts';

/** One step of a schedule. */
export type Move =
  | {
      readonly do: 'enqueue';
      readonly kind: KindName;
      readonly key: string;
      readonly n: number;
      readonly later: boolean;
    }
  | {
      readonly do: 'claim';
      readonly worker: number;
      readonly limit: number;
      readonly chain: number;
      readonly rows: number;
    }
  | { readonly do: 'settle'; readonly worker: number; readonly pick: number; readonly how: Outcome }
  | { readonly do: 'settle everything'; readonly worker: number }
  | { readonly do: 'crash'; readonly worker: number }
  | { readonly do: 'lose the answer'; readonly worker: number; readonly limit: number }
  | { readonly do: 'let time pass' };

export type KindName = 'plain' | 'loose' | 'sync' | 'create' | 'update';
export type Outcome = 'complete' | 'error' | 'retry' | 'release' | 'partial';

export const KINDS: readonly KindRow[] = [
  { name: 'plain' },
  { name: 'loose' },
  { name: 'sync', coalesce: 'all' },
  { name: 'create' },
  { name: 'update', after: ['create'], coalesce: 'all' },
];

/** The units of one key (or one job without a key) that a worker holds, in the order in which it runs them. */
interface Holding {
  readonly key: string | null;
  readonly epoch: number | null;
  readonly units: ClaimedJob[][];
}

interface Life {
  readonly kind: KindName;
  readonly key: string | null;
  /** Attempts spent so far. */
  spent: number;
  /** How many times in a row it was lost with its worker. */
  lost: number;
  /** It was enqueued for later, and is not due yet. */
  later: boolean;
  /** It waits for a retry: the jobs behind it wait, too. */
  backoff: boolean;
  state: 'new' | 'running' | 'complete' | 'error';
  runs: number;
}

const ATTEMPTS = 3;

/** Plays moves on a real database, and reports violations. */
export class Model {
  readonly #session: SqlSession;
  readonly #row: QueueRow;
  readonly #kindOf: ReadonlyMap<number, KindName>;
  readonly #jobs = new Map<number, Life>();
  readonly #epochs = new Map<string, number>();
  #workers: { id: number; holdings: Holding[] }[] = [];

  static async start(session: SqlSession): Promise<Model> {
    await session.client.query(`
      delete from pawl.queue_job; delete from pawl.queue_receipt; delete from pawl.queue_receipt_one; delete from pawl.queue_dead; delete from pawl.queue_transition;
      delete from pawl.queue_ready; delete from pawl.queue_delayed; delete from pawl.queue_parked; delete from pawl.queue_key;
      delete from pawl.queue_running; delete from pawl.queue_worker`);
    const model = new Model(session, await session.register('model', KINDS, { attempts: ATTEMPTS }));
    for (let index = 0; index < 3; index += 1) {
      model.#workers.push({ id: await session.addWorker(model.#row.queue), holdings: [] });
    }
    return model;
  }

  private constructor(session: SqlSession, row: QueueRow) {
    this.#session = session;
    this.#row = row;
    this.#kindOf = new Map(Object.entries(row.kinds).map(([name, id]) => [id, name as KindName]));
  }

  async play(move: Move): Promise<void> {
    await this.#do(move);
    const wrong = await breaches(this.#session.client);
    if (wrong.length > 0) throw new Error(`after ${JSON.stringify(move)}: ${wrong.join('; ')}`);
  }

  /** Runs all remaining jobs, and checks that they ran. */
  async drain(): Promise<void> {
    const [worker] = this.#workers;
    if (worker === undefined) return;
    for (const index of this.#workers.keys()) await this.play({ do: 'settle everything', worker: index });
    for (let quiet = 0; quiet < 2; ) {
      await this.play({ do: 'let time pass' });
      await this.play({ do: 'claim', worker: 0, limit: 5, chain: 32, rows: 100 });
      quiet = worker.holdings.length === 0 ? quiet + 1 : 0;
      await this.play({ do: 'settle everything', worker: 0 });
    }
    const { complete = 0, dead = 0, ...left } = await places(this.#session.client, this.#row.queue);
    must(Object.keys(left).length === 0, `nothing may be left, but there is ${JSON.stringify(left)}`);
    must(complete + dead === this.#jobs.size, `${this.#jobs.size} jobs became ${complete} complete and ${dead} dead`);
    for (const [id, { state }] of this.#jobs) must(state === 'complete' || state === 'error', `job ${id} is ${state}`);
    const keys = await this.#session.one<number>('select count(*)::int from pawl.queue_key');
    must(keys === 0, `${keys} keys are left`);
  }

  async #do(move: Move): Promise<void> {
    switch (move.do) {
      case 'enqueue':
        return this.#enqueue(move);
      case 'claim':
        return this.#claim(move);
      case 'settle':
        return this.#settle(move);
      case 'settle everything':
        while (this.#worker(move.worker).holdings.length > 0) {
          await this.#settle({ do: 'settle', worker: move.worker, pick: 0, how: 'complete' });
        }
        return;
      case 'crash':
        return this.#crash(move.worker);
      case 'lose the answer':
        return this.#loseAnswer(move);
      case 'let time pass':
        await this.#session.client.query(`update pawl.queue_delayed set run_at = clock_timestamp() - interval '1 s'`);
        for (const job of this.#jobs.values()) job.later = false;
        return;
    }
  }

  async #enqueue({ kind, key, n, later }: Extract<Move, { do: 'enqueue' }>): Promise<void> {
    const name = kind === 'loose' ? null : key;
    const runAt = later ? new Date(Date.now() + 3_600_000) : null;
    const id = this.#row.kinds[kind] ?? -1;
    const jobs = Array.from({ length: n }, () => ({ kind: id, key: name, runAt }));
    for (const job of await this.#session.add(this.#row.queue, jobs)) {
      this.#jobs.set(job, { kind, key: name, spent: 0, lost: 0, later, backoff: false, state: 'new', runs: 0 });
    }
  }

  async #claim({ worker: index, limit, chain, rows }: Extract<Move, { do: 'claim' }>): Promise<void> {
    const worker = this.#worker(index);
    const { jobs } = await this.#session.claim(this.#row.queue, worker.id, { limit, chain, rows });
    for (const job of jobs) this.#checkClaimed(job, jobs);
    for (const { id } of jobs) {
      const life = this.#life(id);
      life.state = 'running';
      life.backoff = false;
      life.runs += 1;
    }
    must(jobs.filter(({ key }) => key === null).length <= limit, `more than ${limit} jobs without a key were claimed`);
    worker.holdings.push(...this.#holdings(jobs));
  }

  #checkClaimed({ id, attempt, key, epoch, kind }: ClaimedJob, together: readonly ClaimedJob[]): void {
    const life = this.#life(id);
    must(life.state === 'new', `job ${id} was claimed while ${life.state}`);
    must(!life.later, `job ${id} was claimed before its time`);
    must(attempt === life.spent + 1, `job ${id} is in attempt ${attempt} after ${life.spent}`);
    must(key === life.key && this.#kindOf.get(kind) === life.kind, `job ${id} came as ${kind} of ${key}`);
    if (key === null) return;
    const busy = this.#workers.some(({ holdings }) => holdings.some((held) => held.key === key));
    must(!busy, `key ${key} was claimed twice`);
    must(
      (epoch ?? 0) > (this.#epochs.get(key) ?? 0) || together.some((o) => o.id !== id && o.epoch === epoch),
      `the token of ${key} did not rise`,
    );
    this.#epochs.set(key, epoch ?? 0);
    for (const [other, before] of this.#jobs) {
      if (before.key !== key || before.state !== 'new' || before.later || together.some((job) => job.id === other))
        continue;
      if (life.kind === 'plain' && before.kind === 'plain')
        must(other > id, `job ${id} overtook ${other} of key ${key}`);
    }
    for (const [other, before] of this.#jobs) {
      if (life.kind !== 'update' || before.kind !== 'create' || before.key !== key) continue;
      const isOpen = before.state === 'new' && !together.some((job) => job.id === other);
      must(!isOpen, `update ${id} came before create ${other}`);
    }
  }

  /** Groups jobs into units as a worker does: coalescing jobs together, creates before updates, else by id. */
  #holdings(jobs: readonly ClaimedJob[]): Holding[] {
    const holdings: Holding[] = [];
    const byKey = new Map<string, ClaimedJob[]>();
    for (const job of jobs) {
      if (job.key === null) holdings.push({ key: null, epoch: null, units: [[job]] });
      else byKey.set(job.key, [...(byKey.get(job.key) ?? []), job]);
    }
    for (const [key, all] of byKey) {
      const units = new Map<string, ClaimedJob[]>();
      for (const job of all.toSorted((a, b) => a.id - b.id)) {
        const name = job.unit > 0 ? `unit ${job.unit}` : `job ${job.id}`;
        units.set(name, [...(units.get(name) ?? []), job]);
      }
      const rank = (unit: ClaimedJob[]): number => (this.#life(unit[0]?.id ?? -1).kind === 'update' ? 1 : 0);
      const ordered = [...units.values()].toSorted((a, b) => rank(a) - rank(b) || (a[0]?.id ?? 0) - (b[0]?.id ?? 0));
      holdings.push({ key, epoch: all[0]?.epoch ?? null, units: ordered });
    }
    return holdings;
  }

  async #settle({ worker: index, pick, how }: Extract<Move, { do: 'settle' }>): Promise<void> {
    const worker = this.#worker(index);
    const holding = worker.holdings[pick % Math.max(1, worker.holdings.length)];
    const unit = holding?.units.shift();
    if (holding === undefined || unit === undefined) return;
    const part: ClaimedJob[] = [];
    const fail: { claim: number; id: number; to: 'retry' | 'release' | 'error'; wait: number }[] = [];
    const failed = (job: ClaimedJob, to: 'retry' | 'release' | 'error'): void => {
      const last = to === 'retry' && job.attempt >= ATTEMPTS;
      fail.push({ claim: job.claim, id: job.id, to: last ? 'error' : to, wait: to === 'retry' ? 3_600_000 : 0 });
    };
    unit.forEach((job, at) => {
      if (how === 'complete' || (how === 'partial' && at % 2 === 0)) part.push(job);
      else failed(job, how === 'partial' ? 'retry' : how);
    });
    const isRetried = fail.some(({ to }) => to !== 'error');
    if (isRetried) for (const job of holding.units.splice(0).flat()) failed(job, 'release');
    const isOver = holding.units.length === 0;
    if (isOver) worker.holdings.splice(worker.holdings.indexOf(holding), 1);
    const claims = [...new Set(part.map(({ claim }) => claim))];
    const stale = await this.#session.settle(this.#row.queue, worker.id, {
      part: claims.map((claim) => ({ claim, ids: part.filter((job) => job.claim === claim).map(({ id }) => id) })),
      fail,
      ...(isOver && holding.key !== null ? { keys: [[holding.key, holding.epoch ?? -1]] } : {}),
    });
    must(stale.length === 0, `claims ${stale.join()} of a living worker are stale`);
    for (const { id } of part) this.#life(id).state = 'complete';
    for (const { id, to } of fail) {
      const life = this.#life(id);
      life.state = to === 'error' ? 'error' : 'new';
      life.backoff = to === 'retry';
      if (to === 'release') continue;
      life.spent += 1;
      life.lost = 0;
    }
  }

  /** The worker's lease runs out, its jobs are rescued, and then the worker still tries to settle them. */
  async #crash(index: number): Promise<void> {
    const worker = this.#worker(index);
    await this.#session.expire(worker.id);
    await this.#session.rescue(this.#row.queue);
    const lost = worker.holdings.flatMap((holding) => holding.units.flat());
    const most = Math.max(...lost.map(({ id }) => this.#life(id).lost));
    for (const { id } of lost) this.#giveBack(id, most);
    const stale = await this.#session.complete(this.#row.queue, worker.id, lost);
    const claims = new Set(lost.map(({ claim }) => claim));
    must(stale.length === claims.size, `${claims.size} claims were lost, but ${stale.length} said to be stale`);
    this.#workers[index] = { id: await this.#session.addWorker(this.#row.queue), holdings: [] };
  }

  /** A claim is committed, its answer never arrives, and the worker gives back the claims that it does not know. */
  async #loseAnswer({ worker: index, limit }: Extract<Move, { do: 'lose the answer' }>): Promise<void> {
    const worker = this.#worker(index);
    const known = worker.holdings.flatMap((holding) => holding.units.flat().map(({ claim }) => claim));
    const { jobs } = await this.#session.claim(this.#row.queue, worker.id, { limit });
    for (const { key, epoch } of jobs) if (key !== null) this.#epochs.set(key, epoch ?? 0);
    const given = await this.#session.one<number>('select jobs from pawl.queue_give_back($1, $2, false)', [
      worker.id,
      [...new Set(known)],
    ]);
    must(given === jobs.length, `${jobs.length} jobs were claimed, ${given} given back`);
    for (const { id } of jobs) this.#life(id).backoff = false;
  }

  /** Jobs that were lost most often before are charged. */
  #giveBack(id: number, most: number): void {
    const life = this.#life(id);
    const charged = life.lost === most;
    life.spent += charged ? 1 : 0;
    life.lost = charged ? life.lost + 1 : Math.max(1, life.lost);
    life.state = life.spent >= ATTEMPTS ? 'error' : 'new';
  }

  #worker(index: number): { id: number; holdings: Holding[] } {
    const worker = this.#workers[index];
    if (worker === undefined) throw new Error(`there is no worker ${index}`);
    return worker;
  }

  #life(id: number): Life {
    const life = this.#jobs.get(id);
    if (life === undefined) throw new Error(`job ${id} was never enqueued`);
    return life;
  }
}

function must(holds: boolean, otherwise: string): void {
  if (!holds) throw new Error(otherwise);
}
