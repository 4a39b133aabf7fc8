import { checkOptions, oneOf } from '../base/options/options.ts';
import { refusal } from '../base/options/refusal.ts';
import { type Duration, parseDuration } from '../base/time/duration.ts';
import type { AcquireOutcome } from './acquire/lock-request.ts';
import { runWhileHolding } from './held-context.ts';
import { HeldLock, type Lock } from './lease.ts';
import { type AcquireOptions, type HoldOptions, parseHoldOptions } from './options.ts';

/** Options of {@link Locks.oncePer}. */
export interface OncePerOptions extends Omit<HoldOptions, 'mode'> {
  /** After a failed run: `'release'` (default) lets the next caller try at once, `'keep'` only after the period. */
  readonly onError?: 'release' | 'keep' | undefined;
}

/** Whether this call ran `fn`. If not, `why` says that a run `'ran'` within the period, or is `'running'` now. */
export type OncePerResult<T> =
  | { readonly ran: true; readonly value: T }
  | { readonly ran: false; readonly why: 'ran'; readonly nextInMs: number }
  | { readonly ran: false; readonly why: 'running'; readonly holder: string | undefined };

type Take = (options: AcquireOptions, periodMs: number) => Promise<HeldLock | AcquireOutcome>;

/**
 * Takes the lock unless the run of this period is done, runs `fn`, and counts the run in the statement that releases the
 * lock.
 */
export async function oncePer<T>(
  take: Take,
  period: Duration,
  fn: (lock: Lock) => T | Promise<T>,
  options: OncePerOptions | undefined,
): Promise<OncePerResult<T>> {
  const what = 'oncePer';
  const periodMs = parseDuration(period, { what, field: 'period', min: 100 });
  if (typeof fn !== 'function') throw refusal({ what, field: 'fn' }, fn, 'the function to run once per period');
  const { onError, ...rest } = options ?? {};
  const checked = checkOptions(what, { onError }, { onError: oneOf(['release', 'keep'], { default: 'release' }) });
  const lock = await take(parseHoldOptions(what, rest, false), periodMs);
  if (!(lock instanceof HeldLock)) return toNotRun(lock);
  let value: T;
  try {
    value = await runWhileHolding(lock, async () => fn(lock));
  } catch (error) {
    await lock.finish(checked.onError === 'keep' ? { outcome: 'failure', periodMs } : undefined).catch(() => {});
    throw error;
  }
  // Unlike after a request, the outcome of the release matters: a run that was not counted will be repeated.
  await lock.finish({ outcome: 'success', periodMs });
  return { ran: true, value };
}

function toNotRun<T>(outcome: AcquireOutcome): OncePerResult<T> {
  if (outcome.kind === 'done') return { ran: false, why: 'ran', nextInMs: outcome.retryMs };
  return { ran: false, why: 'running', holder: outcome.kind === 'held' ? outcome.holder : undefined };
}
