import { Cooldown } from '../../../base/time/cooldown.ts';
import type { ClaimAnswer, Cursor, Looked } from '../../store.ts';
import { START } from '../scan.ts';
import { type Candidate, Candidates, type Seen } from './candidates.ts';

/**
 * After so long somebody looks again from the start, like a pass: what came due since, goes first, or was committed late, with
 * a lower id or as the job of a key, waits no longer than this.
 */
const PASS_MS = 100;

/**
 * What a look has shown is not taken any more after this, while another one is made: with handlers that take long it would be
 * the next job for as long again.
 */
const STALE_MS = 1000;

/** For so long a lane waits for another one's look, whose connection may be dead; then it looks itself. */
export const LOOK_MS = 100;

/** How many rows a look may show: it costs 1 µs for each, and with what the job is 4 µs. */
const ROWS = { min: 16, max: 512 } as const;

/** Where a lane takes from, and which jobs are known there; undefined when none is. */
export interface Taking {
  readonly from: Cursor;
  readonly to: Cursor;
  readonly jobs: Map<number, Seen> | undefined;
  /** The one to take; undefined where the first that is free is to be searched for. */
  readonly pick?: Candidate | undefined;
}

/**
 * Jobs without a key that stood in a row when somebody last looked, and which all lanes of a worker take one after another
 * without looking any further. Each begins behind what the others took, instead of stepping over the rows they hold. Before
 * they have taken everything, another look is made beside them, on a connection that no handler has.
 */
export class Lookahead {
  /** Everything up to here was taken by a lane, or was passed over. */
  #from: Cursor = START;
  #to: Cursor = START;
  readonly #candidates = new Candidates();
  readonly #lanes: number;
  #left = 0;
  /** Takes that are not answered yet. */
  #open = 0;
  #taken = 0;
  #rows: number = ROWS.min;
  #isLookedAt = false;
  #isFruitful = true;
  #lookedAt = -Infinity;
  #looking: Promise<void> | undefined;
  #endLook: (() => void) | undefined;
  /** The last look showed where it ends: another one would show no more of it. */
  #isWhole = false;
  #passAt = -Infinity;
  #ahead: LookaheadRead | undefined;
  /** Slow looks beside the lanes help nobody. */
  readonly #reluctance = new Cooldown();

  constructor(lanes: number) {
    this.#lanes = lanes;
  }

  /** Whether to take from here. If not, it is for the caller to look. */
  get hasCandidates(): boolean {
    if (this.#left <= 0 || this.#isStale) return false;
    return this.#isLookedAt || (!this.#isScarce && !this.isPassDue);
  }

  /** Whether the next look should be one from the start. */
  get isPassDue(): boolean {
    return performance.now() - this.#passAt > PASS_MS;
  }

  get #isStale(): boolean {
    return performance.now() - this.#passAt > STALE_MS;
  }

  get #isScarce(): boolean {
    return this.#left < 2 * this.#lanes && !this.#isWhole;
  }

  /**
   * A look that is under way, where it is better to wait for its end: a look costs as much as four takes, and the first one
   * of a connection as much as a hundred. Not where looks show less than something for each lane, as with jobs that have
   * keys: each looks for itself then.
   */
  get looking(): Promise<void> | undefined {
    if (!this.#isLookedAt || !this.#isFruitful || this.hasCandidates) return undefined;
    return this.#isOverdue ? undefined : this.#looking;
  }

  /** Whether to look beside the lanes, which take the rest meanwhile. */
  get wantsLook(): boolean {
    if (this.#isLookedAt || !this.#isFruitful || this.#left <= 0 || !this.#reluctance.isOver) return false;
    if (this.#isStale) return false;
    return this.#isScarce || this.isPassDue;
  }

  /** Begins a look by a lane, which claims the first job. @returns how many rows it should show; 0: somebody else is at it */
  look(): number {
    if (this.#isLookedAt && !this.#giveUpAhead()) return 0;
    if (this.#isStale) this.#left = 0;
    this.#beginLook(this.isPassDue);
    return this.#rows;
  }

  /** Ends a lane's look, with what it showed, if anything. */
  see(answer: ClaimAnswer | undefined): void {
    const [priority, id, n] = answer?.until ?? [];
    const last = answer?.last;
    this.#endLook?.();
    this.#left = 0;
    // A run that was taken apart is something to take.
    this.#isFruitful = answer?.again === true;
    if (last === undefined || priority === undefined || id === undefined || n === undefined) return;
    this.#from = { priority: last[0], id: last[1] };
    this.#to = { priority, id };
    this.#candidates.set(undefined);
    this.#left = n - this.#open;
    this.#isFruitful = this.#left >= this.#lanes;
    this.#isWhole = n < this.#rows;
  }

  /** Begins a look beside the lanes: at what follows, or, now and then, from the start. {@link LookaheadRead.end} ends it. */
  beginRead(): LookaheadRead {
    const isPass = this.isPassDue || this.#candidates.jobs === undefined;
    this.#beginLook(isPass);
    const ahead: LookaheadRead = {
      rows: this.#rows,
      cursor: isPass ? START : this.#to,
      end: (looked) => {
        if (this.#ahead !== ahead) return;
        this.#endAhead();
        if (looked === undefined) this.#isFruitful = false;
        else this.#seeAhead(looked, isPass);
      },
    };
    this.#ahead = ahead;
    return ahead;
  }

  #endAhead(): void {
    this.#ahead = undefined;
    this.#reluctance.record(this.#isOverdue);
    this.#endLook?.();
  }

  /** One that waits for a connection, which the lanes may all hold, does not keep them from looking. */
  #giveUpAhead(): boolean {
    if (this.#ahead === undefined || !this.#isOverdue) return false;
    this.#endAhead();
    return true;
  }

  get #isOverdue(): boolean {
    return performance.now() - this.#lookedAt > LOOK_MS;
  }

  #seeAhead(looked: Looked, isPass: boolean): void {
    const { n, until: [priority, id] = [START.priority, START.id] } = looked;
    if (isPass) {
      this.#from = START;
      this.#to = { priority, id };
      this.#candidates.set(looked);
      this.#left = this.#candidates.jobs?.size ?? n - this.#open;
    } else if (n > 0) {
      this.#to = { priority, id };
      this.#left += n;
      this.#candidates.add(looked);
    }
    this.#isFruitful = this.#left >= this.#lanes;
    this.#isWhole = n < this.#rows;
  }

  #beginLook(isPass: boolean): void {
    this.#candidates.beginLook();
    this.#rows = Math.max(ROWS.min, Math.min(ROWS.max, isPass ? this.#taken * 3 : this.#rows * 2));
    this.#isLookedAt = true;
    this.#lookedAt = performance.now();
    this.#looking = new Promise((resolve) => {
      this.#endLook = () => {
        this.#isLookedAt = false;
        resolve();
      };
    });
    if (isPass) this.#passAt = performance.now();
    this.#taken = 0;
  }

  take(): Taking {
    this.#left -= 1;
    this.#open += 1;
    const { jobs } = this.#candidates;
    return { from: this.#from, to: this.#to, jobs, pick: this.#candidates.take() };
  }

  /** Ends a take. Without an answer: what was picked is somebody else's, or nothing can be had there any more. */
  took({ to, pick }: Taking, answer: ClaimAnswer | undefined): void {
    this.#open -= 1;
    this.#candidates.took(pick, answer?.last?.[1]);
    if (answer?.last === undefined) {
      if (pick === undefined && to === this.#to) this.#left = 0;
      return;
    }
    this.#taken += 1;
    const [priority, id] = answer.last;
    if (priority > this.#from.priority || (priority === this.#from.priority && id > this.#from.id)) {
      this.#from = { priority, id };
    }
  }

  /** Keeps looks from showing what a lane has claimed. @returns to be called once its transaction is over */
  hold(answer: ClaimAnswer): () => void {
    return this.#candidates.hold(answer);
  }
}

/** A look that is made beside the lanes. */
export interface LookaheadRead {
  readonly rows: number;
  readonly cursor: Cursor;
  /** Tells what it showed; undefined when it failed. */
  end(looked: Looked | undefined): void;
}
