import type { Violation } from '../../plan.ts';
import type { Effect, Job, Move, QueueHistory, Run } from '../history.ts';

/** A span of time, by the clock of the notes; the end may be Infinity. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** Statuses that only a change by hand ends. */
export const FINAL: readonly string[] = ['complete', 'error', 'cancelled'];

/** A history, indexed for the rules. */
export class Observation {
  readonly history: QueueHistory;
  readonly #jobs: ReadonlyMap<string, Job>;
  readonly #moves: ReadonlyMap<string, readonly Move[]>;
  readonly #movesOf: ReadonlyMap<string, readonly Move[]>;
  readonly #runs: ReadonlyMap<string, readonly Run[]>;
  readonly #runsOf: ReadonlyMap<string, readonly Run[]>;
  readonly #effects: ReadonlyMap<string, readonly Effect[]>;
  readonly #askedAt: ReadonlyMap<number, number>;
  readonly #madeAt: ReadonlyMap<string, number>;
  readonly #erased: ReadonlySet<string>;
  readonly #outstanding = new Map<Job, readonly Span[]>();

  constructor(history: QueueHistory) {
    this.history = history;
    this.#jobs = new Map(history.jobs.map((job) => [job.id, job]));
    // One transaction may charge a job several times, once for each dead worker that it finds.
    // It gives back the claims of each first, some uncharged, and charges what their transactions ran then.
    const moves = history.moves.toSorted(
      (a, b) => a.committedAt - b.committedAt || a.attempt - b.attempt || Number(mayCharge(a)) - Number(mayCharge(b)),
    );
    this.#moves = groupBy(moves, ({ job }) => [job]);
    this.#movesOf = groupBy(moves, ({ process }) => (process === null ? [] : [process]));
    const runs = history.runs.toSorted((a, b) => a.begunAt - b.begunAt);
    this.#runs = groupBy(runs, ({ ids }) => ids);
    this.#runsOf = groupBy(runs, ({ process }) => [process]);
    this.#effects = groupBy(history.effects, ({ job }) => [job]);
    this.#askedAt = new Map(history.requests.flatMap(({ numbers, askedAt }) => numbers.map((n) => [n, askedAt])));
    // Such a job has the number of the request that replaced its payload last.
    const made = history.requests.filter(({ replaces }) => replaces);
    this.#madeAt = new Map(
      made.flatMap(({ ids, numbers, duplicates, askedAt }) =>
        ids.filter((_, at) => !duplicates.has(numbers[at] ?? 0)).map((id) => [id, askedAt]),
      ),
    );
    const asked = history.changes.filter(({ hand }) => hand.do === 'erase').map(({ id }) => id);
    this.#erased = new Set(asked.filter((id) => !this.#jobs.has(id)));
  }

  job(id: string): Job | undefined {
    return this.#jobs.get(id);
  }

  /** The moves of a job, in the order of their commits. */
  moves(job: string): readonly Move[] {
    return this.#moves.get(job) ?? [];
  }

  /** The moves by which jobs left the attempt with this process id. */
  movesOf(process: string): readonly Move[] {
    return this.#movesOf.get(process) ?? [];
  }

  /** The runs of a job, in the order of their starts. With `coalesce: 'latest'` a job may have taken part in more runs. */
  runs(job: string): readonly Run[] {
    return this.#runs.get(job) ?? [];
  }

  runsOf(process: string): readonly Run[] {
    return this.#runsOf.get(process) ?? [];
  }

  effects(job: string): readonly Effect[] {
    return this.#effects.get(job) ?? [];
  }

  /** When the enqueue of a job began; -Infinity if no producer enqueued it, or if none knows which request did. */
  askedAt({ id, n, kind }: Job): number {
    return (kind === 'replaced' ? this.#madeAt.get(id) : this.#askedAt.get(n)) ?? -Infinity;
  }

  /** Whether the job was to be erased and does not exist. Its history was erased with it. */
  isErased(id: string): boolean {
    return this.#erased.has(id);
  }

  /** The spans in which a job was outstanding: several if it was new again by hand. */
  outstanding(job: Job): readonly Span[] {
    const known = this.#outstanding.get(job) ?? this.#spansOf(job);
    this.#outstanding.set(job, known);
    return known;
  }

  #spansOf({ id, committedAt }: Job): Span[] {
    const spans: Span[] = [];
    let from: number | undefined = committedAt;
    for (const move of this.moves(id)) {
      if (FINAL.includes(move.to) && from !== undefined) {
        spans.push({ from, to: move.committedAt });
        from = undefined;
      } else if (move.to === 'new') from ??= move.committedAt;
    }
    return from === undefined ? spans : [...spans, { from, to: Infinity }];
  }

  /** The spans in which a job did not wait: it was claimed, or had ended. They are the longest possible ones. */
  busy(job: Job): Span[] {
    const moves = this.moves(job.id);
    // The rescue of a lost transaction does not know when it began: after the move before it.
    const work = moves.flatMap(({ from, claimedAt, committedAt }, at) =>
      from === 'in-progress' ? [{ from: claimedAt ?? moves[at - 1]?.committedAt ?? -Infinity, to: committedAt }] : [],
    );
    // A lost, uncharged transaction has no move. Its end is unknown, but is before the next start of the job.
    const runs = this.runs(job.id);
    const lost = runs.flatMap(({ begunAt, process, hold }, at) =>
      hold === 'transaction' && this.movesOf(process).every(({ job: id }) => id !== job.id)
        ? [{ from: begunAt, to: runs[at + 1]?.begunAt ?? Infinity }]
        : [],
    );
    const outstanding = this.outstanding(job);
    const ended = outstanding.map(({ to }, nth) => ({ from: to, to: outstanding[nth + 1]?.from ?? Infinity }));
    return [...work, ...lost, ...ended];
  }

  /** The jobs of each key; jobs without a key are left out. */
  get keys(): ReadonlyMap<string, readonly Job[]> {
    return groupBy(this.history.jobs, ({ key }) => (key === null ? [] : [key]));
  }

  /** A violation with the story of these jobs. */
  violation(rule: string, about: string, jobs: readonly string[]): Violation {
    return { rule, about, story: this.#story(jobs) };
  }

  #story(ids: readonly string[]): string[] {
    const of = new Set(ids);
    const lines: { at: number; text: string }[] = [];
    for (const job of this.history.jobs) {
      if (of.has(job.id))
        lines.push({
          at: job.committedAt,
          text: `job ${job.id} (${job.kind} ${job.n}${job.key === null ? '' : `, key ${job.key}`}) is committed`,
        });
    }
    for (const run of this.history.runs) {
      if (!run.ids.some((id) => of.has(id))) continue;
      const who = `${run.member}/${run.pid}`;
      const what = `job ${run.ids.join(',')} attempt ${run.attempt} token ${run.token} (${run.hold} ${tail(run.process)})`;
      lines.push({ at: run.begunAt, text: `${who} begins ${what}` });
      if (run.ended !== undefined) lines.push({ at: run.ended.at, text: `${who} ends ${what}: ${run.ended.how}` });
    }
    for (const move of this.history.moves) {
      if (!of.has(move.job)) continue;
      const { from, to, reason, attempt, process, claimedAt } = move;
      const since = claimedAt === null ? '' : `, claimed ${((claimedAt - move.committedAt) / 1000).toFixed(4)}`;
      lines.push({
        at: move.committedAt,
        text: `job ${move.job} is moved from ${from} to ${to}: ${reason}, attempt ${attempt} (${tail(process)}, xid ${move.xid}${since})`,
      });
    }
    for (const effect of this.history.effects) {
      if (of.has(effect.job))
        lines.push({
          at: effect.committedAt,
          text: `job ${effect.job} has taken effect: attempt ${effect.attempt} token ${effect.token} (${tail(effect.process)}, xid ${effect.xid})`,
        });
    }
    const first = Math.min(...this.history.jobs.slice(0, 1).map(({ committedAt }) => committedAt));
    return lines.toSorted((a, b) => a.at - b.at).map(({ at, text }) => `${((at - first) / 1000).toFixed(4)} ${text}`);
  }
}

function mayCharge({ reason }: Move): boolean {
  return reason !== 'lost with another';
}

function tail(process: string | null): string {
  return process === null ? 'no process' : process.slice(0, 8) + process.slice(-4);
}

export function groupBy<T>(all: readonly T[], namesOf: (one: T) => readonly string[]): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const one of all) {
    for (const name of namesOf(one)) {
      const group = groups.get(name);
      if (group === undefined) groups.set(name, [one]);
      else group.push(one);
    }
  }
  return groups;
}
