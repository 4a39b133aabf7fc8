const failed = new Set<object>();

/**
 * A process that comes to its end because what it ran has given up ends with 1, unless the program sets a code itself: a
 * supervisor that starts it again, or a caller that waits for it, must not take that for success. Undone by {@link forgive}.
 */
export function endInFailure(what: object): void {
  if (failed.size === 0) process.on('beforeExit', setCode);
  failed.add(what);
}

/** The program has stopped it, and so has learned of the failure. */
export function forgive(what: object): void {
  failed.delete(what);
  if (failed.size === 0) process.removeListener('beforeExit', setCode);
}

function setCode(): void {
  process.exitCode ??= 1;
}
