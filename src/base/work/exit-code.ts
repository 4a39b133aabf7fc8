const failed = new Set<object>();

/**
 * If a process ends because its worker has given up, its exit code is 1, unless the program sets a code itself: a supervisor that
 * restarts the process, or a caller that waits for it, must not take the end for success. {@link forgive} undoes it.
 */
export function endInFailure(what: object): void {
  if (failed.size === 0) process.on('beforeExit', setCode);
  failed.add(what);
}

/** Called when the program has stopped the worker, and so has learned of the failure. */
export function forgive(what: object): void {
  failed.delete(what);
  if (failed.size === 0) process.removeListener('beforeExit', setCode);
}

function setCode(): void {
  process.exitCode ??= 1;
}
