/** Tells the process that started this one, if there is one that listens. By hand there is none. */
export function tellParent(message: object): void {
  if (process.connected) process.send?.(message);
}

/**
 * Calls `stop` once: at SIGTERM, at Ctrl-C, or when the parent is gone. Afterwards nothing keeps the process alive.
 * A second Ctrl-C ends it at once.
 */
export function stopWhenTold(stop: () => Promise<void>): void {
  let isStopping = false;
  const begin = (): void => {
    if (isStopping) return;
    isStopping = true;
    stop().then(
      () => process.disconnect?.(),
      (error: unknown) => {
        console.error(error);
        process.exit(1);
      },
    );
  };
  process.once('SIGTERM', begin);
  process.once('SIGINT', begin);
  process.once('disconnect', begin);
  // It was gone before anybody listened here: while this process was still being loaded.
  if (process.connected === false) begin();
}
