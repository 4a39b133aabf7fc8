// A process that takes part in locking: carries out orders, one line of JSON each, several at a time. Arguments: the URL, and
// {listen, skewMs, rate, faults}: its clocks may be wrong, and its requests have the faults of that seed.
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { createLocks, type Lock, type LockOptions } from '../../src/lock/index.ts';
import type { Hold } from '../support/history/history.ts';
import type { Ground, PartySettings } from './ground.ts';

interface Order {
  id: number;
  do: 'acquire' | 'tryAcquire' | 'release' | 'write' | 'state' | 'block' | 'script' | 'oncePer' | 'stepClock';
  name: string | string[];
  permits?: number;
  options?: LockOptions;
  ms?: number;
  /** Does not check its own clock, as after a pause between the check and the write: only the database can refuse. */
  unaware?: boolean;
  steps?: Step[];
}

/** One hold of a script. */
export interface Step {
  /** Several names are taken as a set. */
  readonly names: readonly string[];
  readonly capacity: number;
  readonly lease: number;
  readonly wait: number;
  readonly holdMs: number;
  /** Adds one to the value of the first name, under the guard, with a pause between read and write. */
  readonly writes: boolean;
}

const [, , url = '', settings = '{}'] = process.argv;
const { skewMs = 0, rate = 1, waiterMs = 1000, ...rest }: PartySettings = JSON.parse(settings);
const [trueDate, trueNow] = [Date.now.bind(Date), performance.now.bind(performance)];
let steppedMs = 0;
Date.now = () => skewMs + steppedMs + trueDate() * rate;
performance.now = () => trueNow() * rate;

// Loading an unused SDK would be half of the time to start.
const ground: Ground = url.startsWith('http')
  ? (await import('./dynamodb/ground.ts')).dynamoGround(url, rest)
  : (await import('./ground.ts')).postgresGround(url, rest.listen);
const locks = createLocks(ground.engine, { waiterLease: waiterMs });
const held = new Map<string, Lock>();
const clock = (): number => Number(process.hrtime.bigint() / 1000n) / 1000;
const say = (message: object): void => console.log(JSON.stringify(message));

locks.on('lost', ({ lock, error }) => say({ event: 'lost', name: lock.name, reason: error.reason, at: clock() }));

/** Carries out the steps. @returns the holds, with the times at which this process counted them as held */
async function script(owner: string, steps: readonly Step[]): Promise<Hold[]> {
  const holds: Hold[] = [];
  for (const { names, capacity, lease, wait, holdMs, writes } of steps) {
    const [name = ''] = names;
    const asked = clock();
    const options: LockOptions = { lease, wait };
    const taking =
      capacity === 1
        ? locks.acquire(names, options)
        : capacity === 2_147_483_647
          ? locks.acquire(names, { ...options, mode: 'shared' })
          : locks.semaphore(name, { permits: capacity }).acquire(options);
    const lock = await taking.catch(() => undefined);
    if (lock === undefined) continue;
    // A pause ends the noted hold: the lock may have been lost meanwhile.
    let believed = clock();
    const from = believed;
    const note = (): void => {
      const at = clock();
      if (lock.isHeld) believed = at;
    };
    const noting = setInterval(note, 1);
    if (writes) await ground.write(lock, name, holdMs, false).catch(() => {});
    else await sleep(holdMs);
    note();
    clearInterval(noting);
    const hold = { owner, capacity, token: String(lock.token), asked, from, until: believed };
    holds.push(...names.map((each) => ({ ...hold, name: each })));
    await lock.release().catch(() => {});
  }
  return holds;
}

async function obey(order: Order): Promise<object> {
  const name = Array.isArray(order.name) ? (order.name[0] ?? '') : order.name;
  const lock = held.get(name);
  switch (order.do) {
    case 'acquire': {
      const taking =
        order.permits === undefined
          ? locks.acquire(order.name, order.options)
          : locks.semaphore(name, { permits: order.permits }).acquire(order.options);
      const got = await taking;
      held.set(name, got);
      return { token: String(got.token), at: clock() };
    }
    case 'tryAcquire': {
      const got = await locks.tryAcquire(order.name, order.options);
      if (got !== undefined) held.set(name, got);
      return { token: got === undefined ? undefined : String(got.token), at: clock() };
    }
    case 'release':
      await lock?.release();
      return {};
    case 'write':
      if (lock === undefined) throw new Error(`"${name}" is not held here`);
      return ground.write(lock, name, order.ms ?? 0, order.unaware === true);
    case 'state':
      return { isHeld: lock?.isHeld, reason: lock?.signal.reason?.reason };
    case 'block': {
      const end = trueNow() + (order.ms ?? 0);
      while (trueNow() < end);
      return {};
    }
    case 'stepClock':
      steppedMs += order.ms ?? 0;
      return {};
    case 'script':
      return { holds: await script(name, order.steps ?? []) };
    case 'oncePer': {
      const outcome = await locks.oncePer(name, order.ms ?? 0, () => sleep(20));
      return { ran: outcome.ran };
    }
  }
}

say({ ready: true });
for await (const line of createInterface({ input: process.stdin })) {
  const order: Order = JSON.parse(line);
  void obey(order).then(
    (answer) => say({ id: order.id, ...answer }),
    (error: unknown) =>
      say({ id: order.id, error: error instanceof Error ? error.name : String(error), message: String(error) }),
  );
}
