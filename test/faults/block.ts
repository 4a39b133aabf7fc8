/** Keeps the event loop busy, as in a process that is suspended. */
export function block(ms: number): void {
  const end = process.hrtime.bigint() + BigInt(Math.round(ms * 1e6));
  while (process.hrtime.bigint() < end);
}
