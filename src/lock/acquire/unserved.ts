import { ConnectionFailed, Deadlock, type DeadlockStep, LockTimeout, Throttled } from '../../base/errors.ts';
import { formatDuration } from '../../base/time/duration.ts';
import { describe } from '../name.ts';

/**
 * The error of a request that was not served in time.
 * @param inTheWay  `'unknown'`: the store did not answer at the end of the wait
 */
export function lockTimeout(
  names: readonly string[],
  waitMs: number,
  inTheWay: { readonly holder?: string | undefined } | 'unknown',
): LockTimeout {
  const what = describe(names);
  const isKnown = inTheWay !== 'unknown';
  const holder = isKnown ? inTheWay.holder : undefined;
  const by = holder === undefined ? '' : ` by ${holder}`;
  const advice = 'wait longer, or find its holder with locks.explain()';
  const text =
    waitMs === 0
      ? `${what} is held${by}, and the request does not wait; give a wait, or use tryAcquire`
      : isKnown
        ? `${what} was still held${by} after ${formatDuration(waitMs)}; ${advice}`
        : `${what} was held when the store last answered, and was not granted within ${formatDuration(waitMs)}; ${advice}`;
  return new LockTimeout(text, { holder });
}

/** The error of a request whose time ended while the store could not be asked: the lock may even be free. */
export function unreachable(names: readonly string[], waitMs: number, cause: unknown): ConnectionFailed | Throttled {
  const why = cause instanceof Error ? cause.message : String(cause);
  const text = `${describe(names)} could not be asked for within ${formatDuration(waitMs)}: ${why}`;
  return cause instanceof Throttled ? new Throttled(text, { cause }) : new ConnectionFailed(text, { cause });
}

/** The error of a request that would wait for itself through a chain of other requests. */
export function deadlock(names: readonly string[], cycle: readonly DeadlockStep[]): Deadlock {
  const steps = cycle.map(({ name, token, host, pid }) => {
    const owner = `${host} (pid ${pid})`;
    const name_ = JSON.stringify(name);
    return token === undefined
      ? `${name_}, where ${owner} waits before it`
      : `${name_}, held by ${owner} with token ${token}`;
  });
  return new Deadlock(
    `waiting for ${describe(names)} would never end, as its holders wait for this request: it would wait for ` +
      `${steps.join(', which waits for ')}, which this process holds meanwhile; acquire all the locks as one set, ` +
      'or always in the same order',
    { cycle },
  );
}
