import { checkOptions, duration, optional, text } from '../../../base/options/options.ts';
import { type Duration, formatDuration } from '../../../base/time/duration.ts';

/** The reason of a snooze in the history; a snooze is no failure. */
export const SNOOZED = 'snoozed';

/**
 * An outcome that a handler chooses for its job: returned, thrown, or passed to `unit.fail()`. Made by {@link snooze},
 * {@link retryAfter}, {@link cancelled} and {@link discard}.
 */
export class Verdict extends Error {
  /** @internal */
  readonly to: 'release' | 'retry' | 'cancelled' | 'error';
  /** @internal */
  readonly reason: string;
  /** @internal */
  readonly waitMs: number | undefined;

  /** @internal */
  constructor(to: Verdict['to'], reason: string, message: string, waitMs?: number) {
    super(message);
    this.name = 'Verdict';
    this.to = to;
    this.reason = reason;
    this.waitMs = waitMs;
  }
}

const waitShape = { wait: duration({ min: 1, max: '3650d' }), reason: optional(text({ max: 10_000 })) };
const reasonShape = { reason: optional(text({ max: 10_000 })) };

/**
 * The job is new again after this time, and the attempt is not charged, however often this happens. Writes of the handler through
 * `unit.tx` are rolled back.
 * @param wait  1 ms to 10 years @throws InvalidInput
 */
export function snooze(wait: Duration): Verdict {
  const { wait: ms } = checkOptions('snooze', { wait }, waitShape);
  return new Verdict('release', SNOOZED, `the handler asked to wait ${formatDuration(ms)}`, ms);
}

/**
 * The attempt has failed, and the next one begins after this time instead of the time of `backoff`. The last attempt ends in
 * `error` anyway.
 * @param wait  1 ms to 10 years @param reason  the error to keep @throws InvalidInput
 */
export function retryAfter(wait: Duration, reason?: string): Verdict {
  const given = checkOptions('retryAfter', { wait, reason }, waitShape);
  const words = given.reason ?? `the handler asked to be tried again after ${formatDuration(given.wait)}`;
  return new Verdict('retry', 'failed', words, given.wait);
}

/** No work is left: the job ends as `cancelled`, as if it had been cancelled by hand. @throws InvalidInput */
export function cancelled(reason?: string): Verdict {
  const given = checkOptions('cancelled', { reason }, reasonShape);
  return new Verdict('cancelled', 'cancelled by its handler', given.reason ?? 'cancelled by its handler');
}

/**
 * The job can never succeed: it ends in `error` at once, even if attempts are left. The same as throwing a `NoRetry`, but a
 * handler can return it.
 * @throws InvalidInput
 */
export function discard(reason?: string): Verdict {
  const given = checkOptions('discard', { reason }, reasonShape);
  return new Verdict('error', 'discarded', given.reason ?? 'discarded by its handler');
}
