import type { Draw } from '../../../../support/random.ts';
import { PER_TENANT } from '../../declaration.ts';
import type { QueueHistory } from '../../history.ts';
import { Addition } from './addition.ts';

/** What a queue that is broken may do with the jobs of a tenant. */
export const TENANT_BUGS = ['one more of a tenant runs at a time'] as const;

/** The history, with jobs of a tenant next to those that it has. */
export function withTenant(history: QueueHistory, draw: Draw, bug: string | undefined): QueueHistory {
  const more = new Tenant(history, draw, 4_000_000);
  more.addJobs(bug === undefined || bug !== TENANT_BUGS[0] ? PER_TENANT : PER_TENANT + 1);
  return more.history();
}

class Tenant extends Addition {
  /** So many at a time: each begins when an earlier one has ended. */
  addJobs(places: number): void {
    const free = Array.from({ length: places }, () => 1000);
    for (let n = this.draw.int(3, 8); n > 0; n -= 1) {
      const job = this.put({ ...this.job('plain', 1000), tenant: 't' });
      this.ask([job]);
      const place = free.indexOf(Math.min(...free));
      free[place] = this.run(job, (free[place] ?? 0) + this.draw.int(0, 5));
    }
  }
}
