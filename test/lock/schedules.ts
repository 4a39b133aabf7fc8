import type { Hold, Write } from '../support/history.ts';
import { seeded } from '../support/random.ts';
import type { Step } from './party.child.ts';
import type { Party } from './party.ts';

/** What disturbs a schedule from outside, and what there is to disturb. */
export interface Faults {
  /** Now and then both names are taken as a set. */
  readonly hasSets?: boolean;
  /** Takes a name away from its holders. Gives their tokens. */
  readonly breakLock: (name: string) => Promise<string[]>;
  /** Ends some database connections. */
  readonly terminate: () => Promise<void>;
}

const SHARED = 2_147_483_647;

/**
 * Runs one schedule: each party works off steps of its own on two names, all at once, while one of them may be paused past
 * its lease, a lock broken, and connections ended, as the seed says. Gives what they believed to hold.
 */
export async function runSchedule(seed: number, parties: readonly Party[], faults: Faults): Promise<Hold[]> {
  const random = seeded(seed);
  const pick = <T>(...from: T[]): T => from[Math.floor(random() * from.length)] as T;
  const kinds = [`s${seed}-a`, `s${seed}-b`].map((name) => ({ name, capacity: pick(1, 1, SHARED, 2) }));
  // What lasts longer than a place in the queue is handed over by whoever releases it; the rest is taken at one's turn.
  const lease = pick(150, 700);
  const step = (): Step => {
    const { name, capacity } = pick(...kinds);
    // Readers have a writer among them now and then.
    const mine = capacity === SHARED && random() < 0.3 ? 1 : capacity;
    const writes = capacity === 1 && random() < 0.6;
    const isSet = mine !== 2 && faults.hasSets === true && random() < 0.3;
    // In any order: which one is asked for first must not matter.
    const names = isSet ? [name, ...kinds.map((kind) => kind.name).filter((other) => other !== name)] : [name];
    return { names, capacity: mine, lease, wait: pick(0, 20, 200, 2000), holdMs: Math.floor(random() * 8), writes };
  };
  const working = parties.map((party, index) => {
    const steps = Array.from({ length: 3 + Math.floor(random() * 4) }, step);
    return party.ask({ do: 'script', name: `s${seed}-${index}`, steps });
  });
  /** Until when whoever had the lock with the token that was broken certainly held it: a token is one of its name. */
  const broken = new Map<string, number>();
  const breakName = async (): Promise<void> => {
    const at = clock();
    const name = kinds[0]?.name ?? '';
    for (const token of await faults.breakLock(name)) broken.set(`${name} ${token}`, at);
  };
  await Promise.all([...working, ...disturbances(random, parties, breakName, faults.terminate, lease)]);
  const holds = (await Promise.all(working)).flatMap((answer) => answer['holds'] as Hold[]);
  // Whose lock is broken believes in it until he is told: that is what breaking means, and only guards know it at once.
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

/** Rows of the table `written`, as the history wants them. */
export function toWrites(rows: readonly { seq: string; name: string; value: number; token: string }[]): Write[] {
  return rows.map(({ seq, name, value, token }) => ({ seq: Number(seq), name, value, token: String(token) }));
}
