import type { Draw } from '../../../../support/random.ts';
import { RETRY_AFTER_MS, SNOOZE_MS } from '../../declaration.ts';
import type { QueueHistory } from '../../history.ts';
import { Addition } from './addition.ts';

/** Bugs with jobs that a person changes, or that must wait. */
export const HAND_BUGS = [
  'an update is forgotten',
  'an update that was refused is done',
  'a running job is changed',
  'what was erased is there',
  'what was erased begins',
  'a paused part goes on',
  'a lease ends too early',
  'a snoozed job does not wait',
  'a job is tried again too early',
  'an expired job begins',
  'a job expires too early',
] as const;

/** The history with added jobs that a person changes. */
export function withHands(history: QueueHistory, draw: Draw, bug: string | undefined): QueueHistory {
  const more = new Hands(history, draw, bug);
  more.update();
  more.erase();
  more.pause();
  more.pull();
  more.wait();
  more.expire();
  return more.history();
}

class Hands extends Addition {
  readonly #bug: string | undefined;

  constructor(before: QueueHistory, draw: Draw, bug: string | undefined) {
    super(before, draw, 3_000_000);
    this.#bug = bug;
  }

  /** A change succeeds before the job begins, and is refused while it runs. */
  update(): void {
    const job = this.add('plain', 1000);
    this.ask([job]);
    const hand = { do: 'update', n: job.n, version: 1, delayMs: null } as const;
    this.rest(job, 'new', 'new', 'update', 1010);
    this.change({ hand, id: job.id, askedAt: 1005, outcome: 'acknowledged', answeredAt: 1012 });
    const version =
      this.#bug === 'an update is forgotten' ? 0 : this.#bug === 'an update that was refused is done' ? 2 : 1;
    const begunAt = this.draw.int(1020, 1040);
    const ended = this.runAll([job], { begunAt, version });
    const again = { hand: { ...hand, version: 2 }, id: job.id, askedAt: begunAt + 1, answeredAt: ended + 3 } as const;
    this.change({ ...again, outcome: 'refused' });
    if (this.#bug !== 'a running job is changed') return;
    const long = this.add('plain', 1000);
    this.ask([long]);
    this.runAll([long], { begunAt: 1010, how: 'Error', to: 'new', reason: 'failed' });
    this.rest(long, 'new', 'new', 'update', 1016);
    this.runAll([long], { begunAt: 1200, attempt: 2 });
  }

  /** Nothing is left of the job except the effects of its handler. */
  erase(): void {
    const isThere = this.#bug === 'what was erased is there';
    const job = isThere ? this.add('plain', 1000) : this.job('plain', 1000);
    this.ask([job]);
    const askedAt = this.draw.int(1050, 1060);
    const begunAt = this.#bug === 'what was erased begins' ? askedAt + 20 : 1010;
    this.runAll([job], { begunAt });
    const outcome = this.#bug === undefined && this.draw.chance(0.3) ? 'unknown' : 'acknowledged';
    const answeredAt = outcome === 'unknown' ? Infinity : askedAt + 5;
    this.change({ hand: { do: 'erase', n: job.n }, id: job.id, askedAt, outcome, answeredAt });
  }

  /** Jobs that are enqueued after the pause wait for the resume; earlier jobs may have begun. */
  pause(): void {
    const part = { tag: 'paused' };
    const tagged = (at: number) => this.put({ ...this.job('plain', at), tags: ['paused'] });
    const [before, after] = [tagged(1000), tagged(1030)];
    for (const job of [before, after]) this.ask([job]);
    this.change({ hand: { do: 'pause', part }, id: '', askedAt: 1010, outcome: 'acknowledged', answeredAt: 1020 });
    this.run(before, this.draw.int(1022, 1100));
    const askedAt = 1200;
    const isUnknown = this.draw.chance(0.3);
    const answeredAt = isUnknown ? Infinity : askedAt + 20;
    const outcome = isUnknown ? 'unknown' : 'acknowledged';
    this.change({ hand: { do: 'resume', part }, id: '', askedAt, outcome, answeredAt });
    this.run(after, this.#bug === 'a paused part goes on' ? 1100 : this.draw.int(askedAt + 1, askedAt + 90));
  }

  /** A client that claims by a call keeps its job until its lease ends. */
  pull(): void {
    const job = this.add('plain', 1000);
    this.ask([job]);
    const lost = { how: 'LeaseLost', to: 'new', reason: 'worker lost', hold: 'pull' } as const;
    const early = this.#bug === 'a lease ends too early' ? 40 : -1;
    const over = this.runAll([job], { ...lost, begunAt: 1010, keptUntil: 1011 + early });
    this.runAll([job], { begunAt: over + 5, hold: 'pull', keptUntil: over + 1000, attempt: 2 });
  }

  /** A handler asks for a later call. */
  wait(): void {
    const [snoozed, later] = [this.add('plain', 1000), this.add('plain', 1000)];
    this.ask([snoozed]);
    this.ask([later]);
    const early = (bug: string): number => (this.#bug === bug ? -50 : this.draw.int(0, 20));
    const slept = this.runAll([snoozed], { begunAt: 1010, how: 'asked for release', to: 'new', reason: 'snoozed' });
    this.run(snoozed, slept + SNOOZE_MS + early('a snoozed job does not wait'));
    const failed = this.runAll([later], { begunAt: 1010, how: 'asked for retry', to: 'new', reason: 'failed' });
    const begunAt = failed + RETRY_AFTER_MS + early('a job is tried again too early');
    this.runAll([later], { begunAt, attempt: 2 });
  }

  /** A job that has begun in time runs to its end. */
  expire(): void {
    const expiresAt = 1100;
    const add = (status: string) => this.put({ ...this.job('plain', 1000), expiresAt, status });
    const [inTime, late, lost] = [add('complete'), add('cancelled'), add('complete')];
    for (const job of [inTime, late, lost]) this.ask([job]);
    this.run(inTime, this.#bug === 'an expired job begins' ? 1110 : this.draw.int(1080, 1100));
    this.rest(
      late,
      'new',
      'cancelled',
      'expired',
      this.#bug === 'a job expires too early' ? 1050 : this.draw.int(1100, 1200),
    );
    const over = this.runAll([lost], { begunAt: 1050, how: 'LeaseLost', to: 'new', reason: 'lost with another' });
    this.run(lost, over + expiresAt);
  }
}
