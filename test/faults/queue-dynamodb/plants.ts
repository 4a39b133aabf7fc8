import { BatchWatch } from '../../../src/queue/dynamodb/batch/watch.ts';
import { Expiries } from '../../../src/queue/dynamodb/work/expiries.ts';
import { KeyTaker } from '../../../src/queue/dynamodb/work/key-taking.ts';
import { Letters } from '../../../src/queue/dynamodb/work/letters.ts';
import { Settling } from '../../../src/queue/dynamodb/work/settling.ts';
import { Job } from '../../../src/queue/work/run/claimed-job.ts';

/** Bugs that the checker must find. The first one is in the client of the process. */
export const PLANTS = [
  'conditions always hold',
  'outcomes are not written',
  'pokes are over before they are followed',
  'a job begins whatever its time was',
  'no worker looks at batches',
  'what a job says of its letter is forgotten',
] as const;

/** Puts the bug into this process. */
export function plantIn(plant: string): void {
  switch (plant) {
    case 'outcomes are not written':
      Settling.prototype.settle = () => Promise.resolve({ stale: [], guarded: [], hasNext: false });
      return;
    case 'pokes are over before they are followed':
      KeyTaker.prototype.takeAll = (_, pokes) =>
        Promise.resolve({ keys: [], over: [...pokes.values()].flat(), back: [] });
      return;
    case 'a job begins whatever its time was':
      Expiries.prototype.endDue = () => Promise.resolve({ isMoved: false, nextAt: Infinity });
      Object.defineProperty(Job.prototype, 'isExpired', { get: () => false });
      return;
    case 'no worker looks at batches':
      BatchWatch.prototype.look = () => Promise.resolve(false);
      return;
    case 'what a job says of its letter is forgotten':
      Letters.prototype.leave = () => Promise.resolve('none');
      return;
    default:
      return;
  }
}
