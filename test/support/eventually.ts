/** A loaded machine is slow, and only a failure waits for it. Less than what a test may take, so that a failure says of what. */
const PATIENCE_MS = 50_000;
/** Between two looks, each mostly a query: short at first, then longer and longer. */
const PAUSE_MS = { first: 5, growth: 1.5, most: 80 };

/** Repeats `check` until it no longer throws. */
export function eventually<T>(check: () => T | Promise<T>, timeoutMs: number = PATIENCE_MS): Promise<T> {
  return new Promise((resolve, reject) => {
    let last: unknown = new Error(`what was looked for gave no answer within ${timeoutMs} ms`);
    let timer: NodeJS.Timeout | undefined;
    let isLate = false;
    const late = setTimeout(() => {
      isLate = true;
      clearTimeout(timer);
      reject(last);
    }, timeoutMs);
    const look = async (pauseMs: number): Promise<void> => {
      try {
        resolve(await check());
        clearTimeout(late);
      } catch (error) {
        last = error;
        if (isLate) return;
        const longer = Math.min(pauseMs * PAUSE_MS.growth, PAUSE_MS.most);
        timer = setTimeout(() => void look(longer), pauseMs);
      }
    };
    void look(PAUSE_MS.first);
  });
}

/** Waits until `holds` gives something true, and gives that. Fails after `timeoutMs`, saying what was waited for. */
export function until<T>(
  what: string,
  holds: () => T | Promise<T>,
  timeoutMs: number = PATIENCE_MS,
): Promise<NonNullable<T>> {
  return eventually(async () => {
    const value = await holds();
    if (value) return value;
    throw new Error(`waited ${timeoutMs} ms without success until ${what}`);
  }, timeoutMs);
}

/**
 * Waits for the end of a signal, which may be over already: what a handler does before it listens may take longer than a
 * cancellation.
 */
export async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
}
