import { hostname } from 'node:os';
import { faults } from '../../base/fault.ts';
import type { PortedStore } from './ports.ts';
import type { WorkerSettings } from './worker-parts.ts';

/** Registers a worker in the database. @returns its id */
export async function addWorker(
  store: Pick<PortedStore, 'addWorker'>,
  queue: number,
  { concurrency, leaseMs, hold, takes }: WorkerSettings,
): Promise<number> {
  const id = await store.addWorker({ queue, host: hostname(), pid: process.pid, concurrency, leaseMs, hold, takes });
  if (faults.armed) await faults.reach('queue.after_register');
  return id;
}
