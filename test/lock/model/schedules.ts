import type { Hold, Write } from '../../support/history/history.ts';
import { seeded } from '../../support/random.ts';
import type { Step } from '../party.child.ts';
import type { Party } from '../party.ts';

/** The faults of a schedule. */
export interface Faults {
  /** True: both names are sometimes taken as a set. */
  readonly hasSets?: boolean;
  /** Breaks the locks of a name. @returns the tokens of its holders */
  readonly breakLock: (name: string) => Promise<string[]>;
  /** Terminates some database connections. */
  readonly terminate: () => Promise<void>;
}

const SHARED = 2_147_483_647;

/**
 * Runs one schedule: all parties carry out steps on two names at the same time. By the seed, one of them may be paused for
 * longer than its lease, a lock broken, and connections terminated. @returns the holds, as the parties saw them
 */
export async function runSchedule(seed: number, parties: readonly Party[], faults: Faults): Promise<Hold[]> {
  const random = seeded(seed);
  const pick = <T>(...from: T[]): T => from[Math.floor(random() * from.length)] as T;
  const kinds = [`s${seed}-a`, `s${seed}-b`].map((name) => ({ name, capacity: pick(1, 1, SHARED, 2) }));
  // A lock with a longer lease than a place in the queue is handed over by its release; the rest is taken at a waiter's turn.
  const lease = pick(150, 700);
  const step = (): Step => {
    const { name, capacity } = pick(...kinds);
    // Among readers there is sometimes a writer.
    const mine = capacity === SHARED && random() < 0.3 ? 1 : capacity;
    const writes = capacity === 1 && random() < 0.6;
    const isSet = mine !== 2 && faults.hasSets === true && random() < 0.3;
    // In any order: the order of the names must not matter.
    const names = isSet ? [name, ...kinds.map((kind) => kind.name).filter((other) => other !== name)] : [name];
    return { names, capacity: mine, lease, wait: pick(0, 20, 200, 2000), holdMs: Math.floor(random() * 8), writes };
  };
  const working = parties.map((party, index) => {
    const steps = Array.from({ length: 3 + Math.floor(random() * 4) }, step);
    return party.ask({ do: 'script', name: `s${seed}-${index}`, steps });
  });
  /** For each broken token, until when its holder certainly held the lock. Tokens are unique per name. */
  const broken = new Map<string, number>();
  const breakName = async (): Promise<void> => {
    const at = clock();
    const name = kinds[0]?.name ?? '';
    for (const token of await faults.breakLock(name)) broken.set(`${name} ${token}`, at);
  };
  await Promise.all([...working, ...disturbances(random, parties, breakName, faults.terminate, lease)]);
  const holds = (await Promise.all(working)).flatMap((answer) => answer['holds'] as Hold[]);
  // The holder of a broken lock counts it as held until it learns of the break: only guards know at once.
  return holds.map((hold) => ({
    ...hold,
    until: Math.min(hold.until, broken.get(`${hold.name} ${hold.token}`) ?? Infinity),
  }));
}

/** The clock that the parties use. */
function clock(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000;
}

function disturbances(
  random: () => number,
  parties: readonly Party[],
  breakName: () => Promise<void>,
  terminate: () => Promise<void>,
  leaseMs: number,
): Promise<void>[] {
  const found: Promise<void>[] = [];
  const [pauses, breaks, terminates] = [random() < 0.2, random() < 0.2, random() < 0.15];
  const [whom, when] = [Math.floor(random() * parties.length), 2 + random() * 15];
  if (pauses) found.push(later(when, () => pause(parties[whom], leaseMs * (0.5 + random() * 1.5))));
  if (breaks) found.push(later(when * 0.8, breakName));
  if (terminates) found.push(later(when * 1.2, terminate));
  return found;
}

async function pause(party: Party | undefined, ms: number): Promise<void> {
  party?.child.pause();
  await later(ms, () => Promise.resolve());
  party?.child.resume();
}

function later(ms: number, run: () => Promise<void>): Promise<void> {
  return new Promise((resolve, reject) => {
    setTimeout(() => void run().then(resolve, reject), ms);
  });
}

/** Rows of the table `written` in the form of the history. */
export function toWrites(rows: readonly { seq: string; name: string; value: number; token: string }[]): Write[] {
  return rows.map(({ seq, name, value, token }) => ({ seq: Number(seq), name, value, token: String(token) }));
}
