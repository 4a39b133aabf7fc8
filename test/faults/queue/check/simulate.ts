import { Draw } from '../../../support/random.ts';
import { APART, ATTEMPTS, type KindName, PER_TENANT } from '../declaration.ts';
import type { Effect, Job, Move, QueueHistory, Request, Run } from '../history.ts';
import type { Hold } from '../plan.ts';
import { LOST_FOR_GOOD } from './check-moves.ts';
import { HAND_BUGS, withHands } from './legal/by-hand.ts';
import { GROUP_BUGS, withGroups } from './legal/groups.ts';
import { STOP_BUGS, withStops } from './legal/stops.ts';
import { TENANT_BUGS, withTenant } from './legal/tenants.ts';
import { UNIQUE_BUGS, withUnique } from './legal/unique.ts';

/** Bugs of a simulated queue. */
const OWN_BUGS = [
  'an enqueue is lost',
  'what was rolled back is there',
  'a unique job is there twice',
  'a key is claimed twice',
  'the order is reversed',
  'a predecessor is not waited for',
  'a token stands still',
  'the guard does nothing',
  'a lost claim is settled',
  'a rescue charges no job',
  'a release charges',
  'what was not run is complete',
  'a failed transaction is kept',
  'an effect is outside of its transaction',
  'a unit begins after its claim is lost',
] as const;

type MoreBugs =
  | (typeof GROUP_BUGS)[number]
  | (typeof UNIQUE_BUGS)[number]
  | (typeof HAND_BUGS)[number]
  | (typeof STOP_BUGS)[number]
  | (typeof TENANT_BUGS)[number];

export type Bug = (typeof OWN_BUGS)[number] | MoreBugs;

export const BUGS: readonly Bug[] = [
  ...OWN_BUGS,
  ...GROUP_BUGS,
  ...UNIQUE_BUGS,
  ...HAND_BUGS,
  ...STOP_BUGS,
  ...TENANT_BUGS,
];

type Writable<T> = { -readonly [K in keyof T]: T[K] };

interface SimJob extends Writable<Job> {
  spent: number;
  /** How often in a row it was lost with its worker. */
  losses: number;
  isHeld: boolean;
}

interface SimUnit {
  readonly jobs: readonly SimJob[];
  readonly process: string;
  run?: Writable<Run>;
  /** The outcome that is to be written, or was written. */
  outcome?: 'well' | 'failed' | 'some' | 'refused' | 'exhausted';
  hasEffect: boolean;
}

/** The part of a claim with one key, or with one job without a key. */
interface Holding {
  readonly key: string | null;
  readonly token: bigint;
  readonly claimedAt: number;
  units: SimUnit[];
}

interface SimWorker {
  readonly member: string;
  readonly hold: Hold;
  pid: number;
  holdings: Holding[];
}

interface OpenRequest {
  readonly request: Request;
  readonly jobs: SimJob[];
}

const LIMITS: Readonly<Record<KindName, number>> = ATTEMPTS;
const COALESCED: readonly KindName[] = ['sync', 'last'];

const ADDITIONS = [withUnique, withHands, withStops, withTenant];

/** A legal history: the queue can make each of its moves, at the time at which it is made. */
export function simulate(seed: number, bug?: Bug): QueueHistory {
  const simulator = new Simulator(seed, bug);
  for (let step = 0; step < 60; step += 1) simulator.step();
  simulator.drain();
  const groups = withGroups(simulator.history(), new Draw(seed, 'groups'), bug);
  // Every second legal history has one of these, in turn: with all of them, ten thousand histories would take three times as long.
  const nth = seed % (2 * ADDITIONS.length);
  const added = bug === undefined ? ADDITIONS.slice(nth, nth + 1) : ADDITIONS;
  return added.reduce((history, add, at) => add(history, new Draw(seed, `addition ${at}`), bug), groups);
}

class Simulator {
  readonly #draw: Draw;
  readonly #bug: Bug | undefined;
  readonly #workers: SimWorker[];
  readonly #requests: Request[] = [];
  readonly #jobs: SimJob[] = [];
  readonly #moves: Move[] = [];
  readonly #effects: Effect[] = [];
  readonly #runs: Writable<Run>[] = [];
  #open: OpenRequest[] = [];
  /** Jobs that a lost worker with hold `transaction` ran. The worker that finds it dead charges them. */
  #suspects: SimJob[] = [];
  #now = 1000;
  #number = 0;
  #token = 0n;

  constructor(seed: number, bug: Bug | undefined) {
    this.#draw = new Draw(seed, 'simulation');
    this.#bug = bug;
    const holds: readonly Hold[] = this.#draw.pick<readonly Hold[]>(
      ['lease', 'lease'],
      ['transaction', 'transaction'],
      ['lease', 'transaction', 'lease'],
    );
    this.#workers = holds.map((hold, index) => ({ member: `worker-${index}`, hold, pid: this.#next(), holdings: [] }));
  }

  step(): void {
    this.#wait();
    const worker = this.#worker();
    const what = this.#draw.weighted({
      request: 6,
      commit: 6,
      claim: 8,
      go: 24,
      lose: 3,
      suspect: 2,
      cancel: 0.5,
      giveBack: 1,
    });
    if (what === 'request') this.#request();
    if (what === 'commit') this.#commitRequest();
    if (what === 'claim') this.#claim(worker);
    if (what === 'go') this.#goOn(worker);
    if (what === 'lose') this.#lose(worker);
    if (what === 'suspect') this.#suspect();
    if (what === 'cancel') this.#cancel();
    if (what === 'giveBack') this.#giveBack(worker);
  }

  drain(): void {
    while (this.#open.length > 0) this.#commitRequest();
    for (let step = 0; step < 4000 && this.#jobs.some(({ status }) => status === 'new'); step += 1) {
      this.#wait();
      const worker = this.#worker();
      if (this.#draw.chance(0.3)) this.#claim(worker);
      else this.#goOn(worker, 0.9);
      if (this.#draw.chance(0.02)) this.#suspect();
    }
  }

  history(): QueueHistory {
    const clockErrorMs = 5;
    const skew = this.#draw.int(-4, 4);
    const moved = (at: number): number => at + skew;
    return {
      requests: this.#requests,
      runs: this.#runs,
      jobs: this.#jobs.map((job) => ({
        ...job,
        createdAt: moved(job.committedAt),
        committedAt: moved(job.committedAt),
      })),
      changes: [],
      moves: this.#moves.map((move) => ({
        ...move,
        at: moved(move.committedAt),
        committedAt: moved(move.committedAt),
        claimedAt: move.claimedAt === null ? null : moved(move.claimedAt),
      })),
      effects: this.#effects.map((effect) => ({ ...effect, committedAt: moved(effect.committedAt) })),
      clockErrorMs,
      hasRate: false,
      perTenant: PER_TENANT,
      complaints: [],
    };
  }

  // Producers.

  #request(): void {
    const how = this.#draw.weighted({ alone: 6, committed: 3, 'rolled back': 1 });
    // A unique job is enqueued alone.
    const several = [this.#newJob(), this.#newJob(), this.#newJob()].filter(({ kind }) => kind !== 'create');
    const jobs = several.length > 0 && this.#draw.chance(0.3) ? several : [this.#newJob()];
    const created = jobs.length === 1 ? jobs[0] : undefined;
    const first =
      created?.kind === 'create'
        ? this.#jobs.find((job) => job.kind === 'create' && job.key === created.key)
        : undefined;
    const isAsked =
      created?.kind === 'create' &&
      this.#open.some(({ jobs: [other] }) => other?.kind === 'create' && other.key === created.key);
    // If two transactions enqueue the same unique job, the second one waits for the first.
    if (isAsked) return;
    const numbers = jobs.map(({ n }) => n);
    const base = { numbers, askedAt: this.#now, how };
    if (first !== undefined && how !== 'rolled back' && this.#bug !== 'a unique job is there twice') {
      this.#requests.push({ ...base, outcome: 'acknowledged', ids: [first.id], duplicates: new Set(numbers) });
      return;
    }
    const ids = jobs.map(({ id }) => id);
    const fate =
      how === 'rolled back'
        ? 'refused'
        : this.#draw.weighted({ acknowledged: 16, unknown: 2, 'unknown, and not there': 1, refused: 1 });
    const outcome = fate === 'unknown, and not there' ? 'unknown' : fate;
    const isKnown = outcome === 'acknowledged';
    const request: Request = { ...base, outcome, ids: isKnown ? ids : [], duplicates: new Set() };
    const isThere = fate === 'acknowledged' || fate === 'unknown' || this.#bug === 'what was rolled back is there';
    this.#open.push({ request, jobs: isThere && !this.#isLost() ? jobs : [] });
  }

  #isLost(): boolean {
    return this.#bug === 'an enqueue is lost' && this.#draw.chance(0.2);
  }

  /** Transactions end in any order, independent of the ids that they drew. */
  #commitRequest(): void {
    const at = this.#draw.int(0, this.#open.length - 1);
    const [open] = this.#open.splice(at, 1);
    if (open === undefined) return;
    this.#requests.push(open.request);
    for (const job of open.jobs) job.committedAt = this.#now;
    this.#jobs.push(...open.jobs);
  }

  #newJob(): SimJob {
    const kind = this.#draw.weighted<KindName>({
      plain: 8,
      sync: 4,
      last: 2,
      create: 1,
      update: 3,
      fragile: 2,
      timed: 1,
      newer: 0,
      ...APART,
    });
    const key = kind === 'plain' || kind === 'timed' ? this.#draw.pick(null, 'k1', 'k2') : this.#draw.pick('k1', 'k2');
    const n = this.#next();
    const isDelayed = this.#draw.chance(0.05);
    const onError = n % 5 === 0 ? 'own' : null;
    const job = { id: String(n), n, kind, key, onError, isDelayed, createdAt: 0, committedAt: 0, status: 'new' };
    return { ...job, spent: 0, losses: 0, isHeld: false };
  }

  #cancel(): void {
    const job = this.#jobs.find(({ status, isHeld }) => status === 'new' && !isHeld);
    if (job === undefined) return;
    job.status = 'cancelled';
    const claimedAt = null;
    this.#moves.push({
      job: job.id,
      from: 'new',
      to: 'cancelled',
      reason: 'cancel',
      attempt: job.spent,
      process: null,
      claimedAt,
      at: this.#now,
      committedAt: this.#now,
      xid: this.#xid(),
    });
  }

  // Workers.

  #claim(worker: SimWorker): void {
    if (worker.holdings.length > (worker.hold === 'transaction' ? 1 : 3)) return;
    const free = this.#jobs.filter(({ status, isHeld }) => status === 'new' && !isHeld);
    const job = free[this.#draw.int(0, free.length - 1)];
    if (job === undefined) return;
    this.#token += 1n;
    const token = this.#bug === 'a token stands still' ? 1n : this.#token;
    if (job.key === null)
      return this.#hold(worker, { key: null, token, claimedAt: this.#now, units: [this.#unit([job])] });
    const isBusy = this.#workers.some(({ holdings }) => holdings.some(({ key }) => key === job.key));
    if (isBusy && this.#bug !== 'a key is claimed twice') return;
    const units = this.#chain(free.filter(({ key }) => key === job.key));
    const n = worker.hold === 'transaction' ? 1 : this.#draw.int(1, 4);
    if (units.length > 0) this.#hold(worker, { key: job.key, token, claimedAt: this.#now, units: units.slice(0, n) });
  }

  #hold(worker: SimWorker, holding: Holding): void {
    for (const job of holding.units.flatMap(({ jobs }) => jobs)) job.isHeld = true;
    worker.holdings.push(holding);
  }

  /** Units of a key in order: by their first jobs, and each kind behind the kind that it comes after. */
  #chain(free: readonly SimJob[]): SimUnit[] {
    const jobs = free.toSorted((a, b) => (this.#bug === 'the order is reversed' ? b.n - a.n : a.n - b.n));
    const parts = new Map<string, SimJob[]>();
    for (const job of jobs) {
      const part = COALESCED.includes(job.kind) ? job.kind : job.id;
      parts.set(part, [...(parts.get(part) ?? []), job]);
    }
    const rank = ([job]: SimJob[]): number => (job?.kind === 'update' ? 1 : 0);
    const all = [...parts.values()];
    const ordered = this.#bug === 'a predecessor is not waited for' ? all : all.toSorted((a, b) => rank(a) - rank(b));
    return ordered.map((part) => this.#unit(part));
  }

  #unit(jobs: readonly SimJob[]): SimUnit {
    return { jobs, process: `process-${this.#next()}`, hasEffect: false };
  }

  /** The next step of a worker with one of its holdings. */
  #goOn(worker: SimWorker, goodness = 0.6): void {
    const holding = worker.holdings[this.#draw.int(0, worker.holdings.length - 1)];
    if (holding === undefined) return;
    const running = holding.units.find((unit) => unit.run !== undefined && unit.outcome === undefined);
    if (running !== undefined) return this.#finish(worker, holding, running, goodness);
    const failed = holding.units.some(
      ({ outcome }) => outcome === 'failed' || outcome === 'some' || outcome === 'refused',
    );
    const next = holding.units.find(({ run }) => run === undefined);
    // Ended units are settled now or later; the key continues meanwhile.
    const settles = next === undefined || failed || this.#draw.chance(0.4);
    if (settles && holding.units.some(({ outcome }) => outcome !== undefined)) return this.#settle(worker, holding);
    if (next !== undefined && this.#bug === 'what was not run is complete' && this.#draw.chance(0.3)) {
      next.outcome = 'well';
      return;
    }
    if (next === undefined) return;
    // The last attempt was lost with its worker, so the handler is not called again.
    if (next.jobs.some((job) => job.spent >= LIMITS[job.kind])) next.outcome = 'exhausted';
    else this.#begin(worker, holding, next);
  }

  #begin({ member, pid, hold }: SimWorker, { key, token }: Holding, unit: SimUnit): void {
    const [first] = unit.jobs;
    if (first === undefined) return;
    const ids = (first.kind === 'last' ? unit.jobs.slice(-1) : unit.jobs).map(({ id }) => id);
    const attempt = Math.max(...unit.jobs.map(({ spent }) => spent)) + 1;
    unit.run = {
      process: unit.process,
      member,
      pid,
      hold,
      ids,
      kind: first.kind,
      key,
      attempt,
      token,
      begunAt: this.#now,
      versions: ids.map(() => 0),
    };
    this.#runs.push(unit.run);
  }

  #finish(worker: SimWorker, holding: Holding, unit: SimUnit, goodness: number): void {
    if (!unit.hasEffect && this.#draw.chance(0.7)) {
      unit.hasEffect = true;
      if (worker.hold === 'lease') this.#takeEffect(unit, this.#xid());
      return;
    }
    const { jobs, run } = unit;
    if (run === undefined) return;
    unit.outcome =
      unit.hasEffect && this.#draw.chance(goodness)
        ? jobs.length > 1 && jobs[0]?.kind === 'sync' && this.#draw.chance(0.2)
          ? 'some'
          : 'well'
        : this.#draw.chance(0.05)
          ? 'refused'
          : 'failed';
    // A handler that timed out ends at another time, or never.
    const isDeaf = unit.outcome === 'failed' && this.#draw.chance(0.1);
    const isWell = unit.outcome === 'well' || unit.outcome === 'some';
    if (!isDeaf) run.ended = { at: this.#now, how: isWell ? 'well' : 'Error' };
    else if (this.#draw.chance(0.5)) run.ended = { at: this.#now + this.#draw.int(1, 500), how: 'LeaseLost' };
    if (worker.hold === 'transaction') this.#settle(worker, holding);
  }

  #takeEffect({ run, process, jobs }: SimUnit, xid: string): void {
    if (run === undefined) return;
    for (const { id } of jobs) {
      if (!run.ids.includes(id)) continue;
      this.#effects.push({ job: id, process, token: run.token, attempt: run.attempt, committedAt: this.#now, xid });
    }
  }

  /** Writes the outcomes of ended units. If a unit is to be retried, gives the rest of the key back. */
  #settle(worker: SimWorker, holding: Holding): void {
    this.#wait();
    const xid = this.#xid();
    const ended = holding.units.filter(({ outcome }) => outcome !== undefined);
    for (const unit of ended) {
      const isKept = unit.outcome === 'well' || unit.outcome === 'some' || this.#bug === 'a failed transaction is kept';
      if (worker.hold === 'transaction' && unit.hasEffect && isKept) {
        this.#takeEffect(unit, this.#bug === 'an effect is outside of its transaction' ? this.#xid() : xid);
      }
      unit.jobs.forEach((job, at) => this.#settleJob(job, unit, holding, at, xid));
    }
    holding.units = holding.units.filter(({ outcome }) => outcome === undefined);
    const isRetried = ended.some(({ jobs }) => jobs.some(({ status }) => status === 'new'));
    if (isRetried) this.#release(holding, xid, 'behind a job of its key');
    if (holding.units.length === 0) this.#drop(worker, holding);
  }

  #settleJob(job: SimJob, { outcome, process }: SimUnit, { claimedAt }: Holding, at: number, xid: string): void {
    const isWell = outcome === 'well' || (outcome === 'some' && at % 2 === 0);
    const attempt = job.spent + 1;
    if (outcome === 'exhausted') {
      const isSpent = job.spent >= LIMITS[job.kind];
      const reason = isSpent ? 'worker lost' : 'another job of its unit was lost with its worker, or has expired';
      return this.#move(job, isSpent ? 'error' : 'new', reason, { attempt, process, claimedAt, xid });
    }
    job.spent = attempt;
    if (isWell) this.#move(job, 'complete', 'complete', { attempt, process, claimedAt, xid });
    else if (outcome === 'refused') this.#move(job, 'error', 'no retry', { attempt, process, claimedAt, xid });
    else if (attempt >= LIMITS[job.kind])
      this.#move(job, 'error', 'attempts exhausted', { attempt, process, claimedAt, xid });
    else this.#move(job, 'new', this.#draw.pick('failed', 'timed out'), { attempt, process, claimedAt, xid });
  }

  #release(holding: Holding, xid: string, reason: string): void {
    for (const { jobs, process } of holding.units) {
      for (const job of jobs) {
        this.#move(job, 'new', reason, { attempt: job.spent + 1, process, claimedAt: holding.claimedAt, xid });
        if (this.#bug === 'a release charges') job.spent += 1;
      }
    }
    holding.units = [];
  }

  /** Gives back units that have not begun. */
  #giveBack(worker: SimWorker): void {
    const holding = worker.holdings.find(({ units }) => units.every(({ run }) => run === undefined));
    if (holding === undefined || worker.hold === 'transaction') return;
    this.#release(holding, this.#xid(), this.#draw.pick('claimed too far ahead', 'worker stopped', 'claim lost'));
    this.#drop(worker, holding);
  }

  // Faults.

  /** The worker dies, is suspended or is cut off; another worker rescues its jobs. */
  #lose(worker: SimWorker): void {
    const xid = this.#xid();
    const lost = worker.holdings;
    worker.holdings = [];
    worker.pid = this.#next();
    for (const holding of lost) {
      if (worker.hold === 'lease') this.#rescue(holding, xid);
      else this.#rollBack(worker, holding);
      for (const { run, outcome } of holding.units) {
        // A suspended worker may continue later, and believe that its run ended well.
        if (run !== undefined && outcome === undefined && this.#draw.chance(0.5)) {
          run.ended = { at: this.#now + this.#draw.int(0, 300), how: this.#draw.pick('well', 'LeaseLost') };
        }
      }
    }
    if (worker.hold === 'lease') this.#wake(worker, lost);
  }

  /** Of a key, only the first unit can have begun without being settled. For a job without a key this is unknown. */
  #rescue(holding: Holding, xid: string): void {
    holding.units.forEach(({ jobs, process }, nth) => {
      for (const job of jobs) {
        const attempt = job.spent + 1;
        const isCharged = nth === 0;
        if (isCharged && this.#bug !== 'a rescue charges no job') job.spent = attempt;
        const isOver = isCharged && attempt >= LIMITS[job.kind];
        this.#move(job, isOver ? 'error' : 'new', 'worker lost', {
          attempt,
          process,
          claimedAt: holding.claimedAt,
          xid,
        });
      }
    });
  }

  /** A transaction is undone without a trace. A job that ran for a moment is charged later, unless it is claimed by then. */
  #rollBack(worker: SimWorker, holding: Holding): void {
    for (const unit of holding.units) {
      // A suspended process may not have read the answer to its claim yet.
      const isSpent = unit.jobs.some((job) => job.spent >= LIMITS[job.kind]);
      if (unit.run === undefined && !isSpent && this.#draw.chance(0.3)) {
        this.#begin({ ...worker, pid: worker.pid - 1 }, holding, unit);
      } else if (unit.run !== undefined && this.#draw.chance(0.5)) this.#suspects.push(...unit.jobs);
      for (const job of unit.jobs) job.isHeld = false;
    }
  }

  #suspect(): void {
    const xid = this.#xid();
    const free = this.#suspects.filter(({ isHeld }) => !isHeld);
    this.#suspects = this.#suspects.filter(({ isHeld }) => isHeld);
    const before = this.#moves.length;
    for (const job of free) {
      if (job.status !== 'new') continue;
      job.spent += 1;
      const isOver = job.spent >= LIMITS[job.kind] && job.key === null;
      const move = { attempt: job.spent, process: null, claimedAt: null, xid };
      this.#move(job, isOver ? 'error' : 'new', 'worker lost', move);
      // It has no attempt left then, and ends with its next claim.
      if (job.key !== null && job.losses >= LOST_FOR_GOOD) job.spent = Math.max(job.spent, LIMITS[job.kind]);
    }
    // A table has no order.
    this.#moves.push(...this.#moves.splice(before).toReversed());
  }

  /** A process that was declared dead continues. It must change nothing, unless a bug lets it. */
  #wake(worker: SimWorker, lost: readonly Holding[]): void {
    for (const holding of lost) {
      for (const unit of holding.units) {
        this.#wait();
        const { run } = unit;
        if (this.#bug === 'a unit begins after its claim is lost' && run === undefined) {
          this.#now += 50;
          this.#begin(worker, holding, unit);
        }
        if (run === undefined) continue;
        if (this.#bug === 'the guard does nothing' && !unit.hasEffect) this.#takeEffect(unit, this.#xid());
        if (this.#bug !== 'a lost claim is settled') continue;
        for (const job of unit.jobs) {
          this.#move(job, 'complete', 'complete', {
            attempt: job.spent + 1,
            process: unit.process,
            claimedAt: holding.claimedAt,
            xid: this.#xid(),
          });
          job.status = 'new';
        }
      }
    }
  }

  // Common parts.

  #move(job: SimJob, to: string, reason: string, of: Pick<Move, 'attempt' | 'process' | 'claimedAt' | 'xid'>): void {
    job.isHeld = false;
    job.status = to;
    job.losses = reason === 'worker lost' ? job.losses + 1 : 0;
    const now = this.#now;
    this.#moves.push({ job: job.id, from: 'in-progress', to, reason, at: now, committedAt: now, ...of });
  }

  #drop(worker: SimWorker, holding: Holding): void {
    worker.holdings = worker.holdings.filter((other) => other !== holding);
  }

  #worker(): SimWorker {
    const [first, ...others] = this.#workers;
    if (first === undefined) throw new Error('a simulation has workers');
    return this.#draw.pick(first, ...others);
  }

  #wait(): void {
    this.#now += this.#draw.pick(0.05, 1, 7, 30);
  }

  #next(): number {
    this.#number += 1;
    return this.#number;
  }

  #xid(): string {
    return String(this.#next());
  }
}
