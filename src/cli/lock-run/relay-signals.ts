/** They would end `pawl`, and so its lock, while the command goes on. Whether they end the command is for the command to say. */
const PASSED: readonly NodeJS.Signals[] = ['SIGHUP', 'SIGUSR1', 'SIGUSR2', 'SIGALRM'];
/** A terminal sends them to the command itself: Ctrl-\, and a new size of the window. */
const OF_TERMINAL: readonly NodeJS.Signals[] = ['SIGQUIT', 'SIGWINCH'];
/** Gives the end of a lease that passed meanwhile its turn first: its timer is due before this one. */
const TURN_MS = 1;

/**
 * Passes the signals that `pawl` gets on to its command.
 * @param isGroup  the command has a process group of its own, which no terminal knows
 * @returns a function that ends this
 */
export function relaySignals(send: (signal: NodeJS.Signals) => void, isGroup: boolean): () => void {
  const relayed = isGroup ? [...PASSED, ...OF_TERMINAL] : PASSED;
  const listeners = new Map<NodeJS.Signals, () => void>(relayed.map((signal) => [signal, () => send(signal)]));
  if (isGroup) {
    listeners.set('SIGTSTP', () => stopBoth(send));
    listeners.set('SIGCONT', () => void setTimeout(() => send('SIGCONT'), TURN_MS));
  } else {
    // Without a listener they would end `pawl`.
    for (const signal of OF_TERMINAL) listeners.set(signal, () => {});
  }
  for (const [signal, listener] of listeners) process.on(signal, listener);
  return () => {
    for (const [signal, listener] of listeners) process.off(signal, listener);
  };
}

/**
 * Ctrl-Z. While `pawl` is stopped it cannot renew the lock, so the command must stand still, too. SIGSTOP, because the kernel
 * passes over SIGTSTP in a group whose parent is in another session.
 */
function stopBoth(send: (signal: NodeJS.Signals) => void): void {
  send('SIGSTOP');
  process.kill(process.pid, 'SIGSTOP');
}
