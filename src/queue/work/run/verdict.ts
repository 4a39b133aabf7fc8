import { checkOptions, duration, optional, text } from '../../../base/options/options.ts';
import { type Duration, formatDuration } from '../../../base/time/duration.ts';

/** The reason of a snooze in the history: no failure. */
export const SNOOZED = 'snoozed';

/**
 * What a handler says of its job in place of a result: returned, thrown, or given to `unit.fail()`. Made by {@link snooze},
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
 * Not now: the job is new again after this time, and the attempt is not charged, however often it happens. Of what the
 * handler wrote through `unit.tx`, nothing is kept.
 * @param wait  1 ms to 10 years @throws InvalidInput
 */
export function snooze(wait: Duration): Verdict {
  const { wait: ms } = checkOptions('snooze', { wait }, waitShape);
  return new Verdict('release', SNOOZED, `the handler asked to wait ${formatDuration(ms)}`, ms);
}

/**
 * The attempt has failed, and the next one begins after this time instead of the time that `backoff` gives. The last attempt
 * ends in `error` anyway.
 * @param wait  1 ms to 10 years @param reason  the error to keep @throws InvalidInput
 */
export function retryAfter(wait: Duration, reason?: string): Verdict {
  const given = checkOptions('retryAfter', { wait, reason }, waitShape);
  const words = given.reason ?? `the handler asked to be tried again after ${formatDuration(given.wait)}`;
  return new Verdict('retry', 'failed', words, given.wait);
}

/** There is nothing to do any more: the job ends as `cancelled`, as if it had been cancelled by hand. @throws InvalidInput */
export function cancelled(reason?: string): Verdict {
  const given = checkOptions('cancelled', { reason }, reasonShape);
  return new Verdict('cancelled', 'cancelled by its handler', given.reason ?? 'cancelled by its handler');
}

/**
 * It can never succeed: the job ends in `error` at once, whatever attempts it has left. The same as throwing a `NoRetry`, but
 * it can be returned. @throws InvalidInput
 */
export function discard(reason?: string): Verdict {
  const given = checkOptions('discard', { reason }, reasonShape);
  return new Verdict('error', 'discarded', given.reason ?? 'discarded by its handler');
}
