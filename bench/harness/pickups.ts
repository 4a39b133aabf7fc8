import { setTimeout as sleep } from 'node:timers/promises';
import type { SendArgs } from '../sides/protocol.ts';
import type { Side } from './side.ts';

/** A job that is not picked up within this time counts as lost. */
const PATIENCE_MS = 60_000;

/** Sends jobs one at a time from `sender` and returns the pick-up latency (ms) of each in `worker`. */
export async function takePickups(sender: Side, worker: Side, args: SendArgs): Promise<number[]> {
  await sender.call('send', args);
  const ms: number[] = [];
  const deadline = performance.now() + PATIENCE_MS;
  while (ms.length < args.count) {
    ms.push(...(await worker.call('pickups')).ms);
    if (performance.now() > deadline) {
      throw new Error(`${worker.name} picked up ${ms.length} of ${args.count} jobs within ${PATIENCE_MS} ms`);
    }
    await sleep(5);
  }
  return ms;
}
