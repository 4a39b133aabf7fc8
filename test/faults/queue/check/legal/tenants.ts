import type { Draw } from '../../../../support/random.ts';
import { PER_TENANT, RATE } from '../../declaration.ts';
import type { QueueHistory } from '../../history.ts';
import { Addition } from './addition.ts';

/** Bugs with the jobs of a tenant. */
export const TENANT_BUGS = ['one more of a tenant runs at a time', 'a tenant begins more than its rate'] as const;

/** The history with added jobs of a tenant. */
export function withTenant(history: QueueHistory, draw: Draw, bug: string | undefined): QueueHistory {
  const more = new Tenant(history, draw, 4_000_000);
  const [isCrowded, isFast] = TENANT_BUGS.map((name) => name === bug);
  more.addJobs(isCrowded ? PER_TENANT + 1 : PER_TENANT, isFast ? 0 : RATE.perMs / RATE.limit);
  return { ...more.history(), hasRate: true };
}

class Tenant extends Addition {
  /** At most `places` jobs run at a time. A job begins when an earlier one has ended and the rate has room: one start more each step. */
  addJobs(places: number, stepMs: number): void {
    const free = Array.from({ length: places }, () => 1000);
    let arrival = 0;
    for (let n = stepMs === 0 ? 60 : this.draw.int(3, this.draw.chance(0.1) ? 40 : 8); n > 0; n -= 1) {
      const job = this.put({ ...this.job('plain', 1000), tenant: 't' });
      this.ask([job]);
      const place = free.indexOf(Math.min(...free));
      const begins = Math.max((free[place] ?? 0) + this.draw.int(0, 5), arrival - (RATE.limit - 1) * stepMs);
      arrival = Math.max(arrival, begins) + stepMs;
      free[place] = this.run(job, begins);
    }
  }
}
