import { Draw } from '../../support/random.ts';
import { drawFaults, type FaultName, USUAL } from '../fault.ts';
import type { Plan } from '../plan.ts';
import type { Manner, Orders } from './declaration.ts';

/** One operation of a producer. */
export interface Operation {
  readonly restMs: number;
  readonly what: 'create' | 'raise' | 'send';
  /** `alone`: handed directly to an idle worker. Else in a transaction of the producer, which leaves a row or is rolled back. */
  readonly how: 'alone' | 'committed' | 'rolled back';
  /** For `create`. */
  readonly orders: Orders;
  /** For the others: the index of the counter. */
  readonly counter: number;
}

export interface ActorPlan extends Plan {
  readonly leaseMs: number;
  readonly workers: readonly { readonly concurrency: number }[];
  readonly counters: number;
  readonly producers: readonly (readonly Operation[])[];
}

export function planActors(seed: number): ActorPlan {
  const draw = new Draw(seed, 'shape');
  const leaseMs = draw.pick(1000, 1500, 2000);
  const workers = Array.from({ length: draw.int(2, 3) }, () => ({ concurrency: draw.int(1, 6) }));
  const counters = draw.int(1, 3);
  const producers = [0, 1].map((producer) =>
    drawOperations(new Draw(seed, `producer ${producer}`), producer, counters),
  );
  const faults = drawFaults(new Draw(seed, 'faults'), {
    n: draw.int(3, 8),
    members: workers.length + producers.length,
    withinMs: 4000,
    leaseMs,
    weights: draw.chance(0.2) ? { ...USUAL, restart: 4 } : USUAL,
  });
  const hasOwnServer = faults.some((fault) => fault.do === ('restart' satisfies FaultName));
  const title = `${workers.length} dispatchers, ${counters} counters, lease ${leaseMs}`;
  return { seed, title, faults, hasOwnServer, leaseMs, workers, counters, producers };
}

function drawOperations(draw: Draw, producer: number, counters: number): Operation[] {
  return Array.from({ length: draw.int(25, 50) }, (_, at): Operation => {
    const what = draw.weighted({ create: 3, raise: 5, send: 4 });
    const how = drawManner(draw);
    const n = producer * 1000 + at;
    return {
      restMs: draw.int(0, 120),
      what,
      how: draw.weighted({ alone: 5, committed: 3, 'rolled back': 1 }),
      orders: {
        n,
        how,
        times: draw.int(1, 2),
        ms: how === 'block' ? draw.int(100, 1500) : draw.pick(0, 0, 5, 50),
        items: draw.int(1, 4),
      },
      counter: draw.int(0, counters - 1),
    };
  });
}

function drawManner(draw: Draw): Manner {
  if (!draw.chance(0.2)) return 'well';
  return draw.weighted<Manner>({ well: 0, throw: 4, 'throw late': 4, deaf: 1, block: 0.3, die: 0.3 });
}
