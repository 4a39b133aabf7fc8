// The common part of the processes of a schedule: each is a script `….child.ts` that imports this file.
import { openSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { block } from '../block.ts';
import type { Order } from './member.ts';

export { block } from '../block.ts';

const environment = process.env;
const trueDate = Date.now.bind(Date);
let steppedMs = 0;
Date.now = () => trueDate() + steppedMs;

/** The database, behind this process's proxy. */
export const url: string = environment['FAULTS_URL'] ?? '';
/** The database without the proxy, for data that the checker needs even if the process's own connections fail. */
export const directUrl: string = environment['FAULTS_DIRECT_URL'] ?? '';
/** Such as `worker 0`. */
export const name: string = environment['FAULTS_NAME'] ?? '';
/** The planted bug that this process must have, if any. */
export const plant: string | undefined = environment['FAULTS_PLANT'];

const file = openSync(environment['FAULTS_LOG'] ?? '/dev/null', 'a');

/** Milliseconds of the clock that all processes of the machine share, and that no fault steps. */
export function clock(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000;
}

/** Writes an event for the checker. When this returns, the event is in the file, and survives a SIGKILL. */
export function note<E extends object>(event: E): void {
  writeSync(file, `${JSON.stringify({ at: clock(), pid: process.pid, ...event })}\n`);
}

/** Reports that this process is ready, then follows the orders on its standard input. `stop` ends its work. */
export function ready(stop: () => Promise<void>): void {
  console.log(JSON.stringify({ ready: true }));
  const orders = createInterface({ input: process.stdin });
  // The schedule was interrupted, so no process of it may continue.
  orders.on('close', () => process.exit(1));
  orders.on('line', (line) => {
    const order: Order = JSON.parse(line);
    if ('stepClock' in order) steppedMs += order.stepClock;
    else if ('block' in order) block(order.block);
    else void stop().then(() => process.exit(0));
  });
}
