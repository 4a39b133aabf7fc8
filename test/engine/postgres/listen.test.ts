import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { ConnectionFailed, DatabaseError, InvalidInput, Stopped } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { Listener } from '../../../src/engine/postgres/listen/listener.ts';
import type { ListenerTiming } from '../../../src/engine/postgres/listen/settings.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { type RecordedLog, recordLog } from '../../support/log.ts';
import { type Proxy, startProxy } from '../../support/proxy.ts';

const NOTIFY = statement('test.notify', 'select pg_notify($1, $2)');
const LISTENERS = statement(
  'test.listeners',
  `select pid from pg_stat_activity
where datname = current_database() and application_name = $1`,
);

let database: Awaited<ReturnType<typeof freshDatabase>>;
let engine: PostgresEngine;
let proxy: Proxy;
let log: RecordedLog;

beforeAll(async () => {
  database = await freshDatabase({ migrated: false });
  engine = postgres(database.url);
});

beforeEach(async () => {
  proxy = await startProxy(database.url);
  log = recordLog();
});

afterEach(() => proxy.stop());

afterAll(async () => {
  await engine.stop();
  await database.drop();
});

function notify(channel: string, payload: string): Promise<unknown> {
  return engine.query(NOTIFY, [channel, payload]);
}

/** A listener behind the proxy, with waits short enough for a test, and none for what a busy server is slow to do. */
function startListener(
  timing: Partial<ListenerTiming> = {},
  send = (channel: string): Promise<void> => notify(channel, '').then(() => {}),
): Listener {
  return new Listener({
    settings: { connectionString: proxy.url },
    seed: '0',
    enabled: true,
    logger: log,
    notify: send,
    timing: { backoff: [10, 50], probeTimeout: 30_000, ...timing },
  });
}

describe('listening', () => {
  test('stops at once while a silent server owes it the answer to a LISTEN', async () => {
    const listener = startListener({ checkTimeout: 40_000 });
    const client = new pg.Client(database.url);
    await client.connect();
    onTestFinished(() => client.end());
    // The lock that shows that a process listens: the listener waits for it, with a connection that is open.
    await client.query(`select pg_advisory_lock(hashtextextended('held', 0))`);
    const subscribing = listener.subscribe('held', () => {}, { isSeen: true });
    subscribing.catch(() => {});
    await eventually(async () =>
      expect((await client.query('select from pg_locks where not granted')).rows).toHaveLength(1),
    );
    const begun = performance.now();
    await listener.stop();
    expect(performance.now() - begun).toBeLessThan(20_000);
    await expect(subscribing).rejects.toThrow();
  });

  test('gives every handler the payloads of its channel, over one connection for all channels', async () => {
    const name = 'listen one connection';
    await using many = postgres(database.url, { applicationName: name, logger: log });
    const heard: string[] = [];
    await many.listen('alpha', (payload) => heard.push(`alpha ${payload}`));
    await many.listen('Beta "quoted"', (payload) => heard.push(`beta ${payload}`));
    const second = await many.listen('alpha', (payload) => heard.push(`second ${payload}`));
    await second.tested;
    await notify('alpha', '1');
    await notify('Beta "quoted"', '2');
    await eventually(() => expect(heard).toEqual(['alpha 1', 'second 1', 'beta 2']));
    await second.stop();
    await second.stop();
    await notify('alpha', '3');
    await eventually(() => expect(heard.slice(3)).toEqual(['alpha 3']));
    // One of the pool, which sent the probe, and one that listens.
    expect(await engine.query(LISTENERS, [name])).toHaveLength(2);
  });

  test('finds out that notifications arrive', async () => {
    const listener = startListener();
    const subscription = await listener.subscribe('proven', () => {});
    expect(await subscription.tested).toBe(true);
    expect(subscription.reliable).toBe(true);
    expect(log.lines).toEqual([]);
    await listener.stop();
  });

  test('says once when notifications do not arrive, and is not reliable', async () => {
    // A channel belongs to one database: listening on another hears nothing, like a pooler in transaction mode.
    const other = await freshDatabase({ migrated: false });
    await using deaf = postgres(database.url, { directUrl: other.url, logger: log });
    const first = await deaf.listen('one', () => {});
    const second = await deaf.listen('two', () => {});
    expect(await first.tested).toBe(false);
    expect([first.reliable, second.reliable]).toEqual([false, false]);
    expect(log.count('warn', /NOTIFY does not arrive/)).toBe(1);
    expect(log.lines).toHaveLength(1);
    await deaf.stop();
    await other.drop();
  });

  test('asks again whether notifications arrive, when the question could not be put', async () => {
    let isAway = true;
    const listener = startListener({}, (channel) =>
      isAway ? Promise.reject(new ConnectionFailed('the pool is busy')) : notify(channel, '').then(() => {}),
    );
    const subscription = await listener.subscribe('asked', () => {});
    await eventually(() => expect(log.count('debug', /could not be sent/)).toBeGreaterThan(1));
    expect(subscription.reliable).toBeNull();
    isAway = false;
    expect(await subscription.tested).toBe(true);
    await listener.stop();
  });

  test('asks again whether notifications arrive, when one did not come in time', async () => {
    let sent = 0;
    const listener = startListener({ probeTimeout: 200, checkEvery: 20 }, async (channel) => {
      sent += 1;
      if (sent > 2) await notify(channel, '');
    });
    const subscription = await listener.subscribe('late', () => {});
    expect(await subscription.tested).toBe(false);
    await subscription.arrived;
    expect(subscription.reliable).toBe(true);
    expect(sent).toBeGreaterThan(2);
    expect(log.lines.map(({ level }) => level)).toEqual(['warn', 'info']);
    await listener.stop();
  });

  test('is switched off by an option, without a connection or a warning', async () => {
    await using quiet = postgres(proxy.url, { listen: false, logger: log });
    const subscription = await quiet.listen('any', () => {});
    expect(await subscription.tested).toBe(false);
    expect(subscription.reliable).toBe(false);
    expect([proxy.accepted, log.lines.length]).toEqual([0, 0]);
  });

  test('goes on when a handler throws', async () => {
    await using listening = postgres(database.url, { logger: log });
    const heard: string[] = [];
    await listening.listen('thrown', () => {
      throw new Error('handler');
    });
    await listening.listen('thrown', (payload) => heard.push(payload));
    await notify('thrown', 'x');
    await eventually(() => expect(heard).toEqual(['x']));
    expect(log.count('error', /handler threw/)).toBe(1);
  });

  test('refuses a channel name that Postgres would cut off', async () => {
    await expect(engine.listen('x'.repeat(64), () => {})).rejects.toBeInstanceOf(InvalidInput);
    await expect(engine.listen('', () => {})).rejects.toBeInstanceOf(InvalidInput);
  });
});

const SEEN = statement('test.seen', 'select not pg_try_advisory_xact_lock(hashtextextended($1, 0)) as seen');

/** Whether somebody shows that it listens there. */
async function isSeen(channel: string): Promise<boolean | undefined> {
  return (await engine.query<{ seen: boolean }>(SEEN, [channel]))[0]?.seen;
}

describe('a subscription that is to be seen', () => {
  test('is seen for as long as its connection lives, and again on the next one', async () => {
    const listener = startListener();
    await listener.subscribe('others', () => {});
    const subscription = await listener.subscribe('seen', () => {}, { isSeen: true });
    // Twice on one connection is once.
    const second = await listener.subscribe('seen', () => {}, { isSeen: true });
    expect(await isSeen('seen')).toBe(true);
    expect(await isSeen('others')).toBe(false);
    proxy.refuse();
    await eventually(async () => expect(await isSeen('seen')).toBe(false));
    proxy.accept();
    await eventually(async () => expect(await isSeen('seen')).toBe(true));
    await second.stop();
    expect(await isSeen('seen')).toBe(true);
    await subscription.stop();
    await eventually(async () => expect(await isSeen('seen')).toBe(false));
    await listener.stop();
  });

  test('does not leave the name of its channel among the statements of its connection', async () => {
    const name = 'listen in secret';
    await using listening = postgres(database.url, { applicationName: name, logger: log });
    const subscription = await listening.listen('secret', () => {}, { isSeen: true });
    await subscription.tested;
    const texts = await engine.query<{ query: string }>(
      statement('test.texts', 'select query from pg_stat_activity where application_name = $1'),
      [name],
    );
    expect(texts.length).toBeGreaterThan(0);
    expect(JSON.stringify(texts)).not.toContain('secret"');
  });
});

describe('a listening connection that is lost', () => {
  test('is renewed, subscribes again, and asks everybody to catch up', async () => {
    const listener = startListener();
    const heard: string[] = [];
    let caughtUp = 0;
    const subscription = await listener.subscribe('renewed', (payload) => heard.push(payload), {
      onReconnect: () => {
        caughtUp += 1;
      },
    });
    await subscription.tested;
    for (const round of [1, 2]) {
      proxy.cut();
      await eventually(() => expect(caughtUp).toBe(round));
      await notify('renewed', `after ${round}`);
      await eventually(() => expect(heard).toContain(`after ${round}`));
    }
    expect(log.count('warn', /was lost/)).toBe(2);
    await listener.stop();
  });

  test('is renewed when the server has forgotten its channels, though it lives', async () => {
    const connect = vi.spyOn(pg.Client.prototype, 'connect');
    const listener = startListener({ checkEvery: 50 });
    const heard: string[] = [];
    let caughtUp = 0;
    const subscription = await listener.subscribe('forgotten', (payload) => heard.push(payload), {
      onReconnect: () => {
        caughtUp += 1;
      },
      isSeen: true,
    });
    await subscription.arrived;
    const { port } = new URL(proxy.url);
    const clients = connect.mock.contexts
      .filter((one) => one instanceof pg.Client)
      .filter((one) => String(one.port) === port);
    connect.mockRestore();
    for (const client of clients) await client.query('discard all');
    await eventually(() => expect(caughtUp).toBe(1));
    await notify('forgotten', 'after');
    await eventually(() => expect(heard).toEqual(['after']));
    expect(await isSeen('forgotten')).toBe(true);
    expect(log.count('warn', /was lost/)).toBe(1);
    await listener.stop();
  });

  test('is renewed when the server terminated it', async () => {
    const name = 'listen terminated';
    await using listening = postgres(database.url, { applicationName: name, logger: log });
    let caughtUp = 0;
    const subscription = await listening.listen('terminated', () => {}, {
      onReconnect: () => {
        caughtUp += 1;
      },
    });
    await subscription.tested;
    for (const { pid } of await engine.query<{ pid: number }>(LISTENERS, [name])) {
      await engine.query(statement('test.terminate', 'select pg_terminate_backend($1)'), [pid]);
    }
    await eventually(() => expect(caughtUp).toBe(1));
  });

  test('is noticed although the socket stays open', async () => {
    const listener = startListener({ checkEvery: 100, checkTimeout: 1000 });
    const heard: string[] = [];
    let caughtUp = 0;
    const subscription = await listener.subscribe('stalled', (payload) => heard.push(payload), {
      onReconnect: () => {
        caughtUp += 1;
      },
    });
    await subscription.tested;
    proxy.stall();
    await eventually(() => expect(caughtUp).toBeGreaterThan(0));
    // Where the machine stands still for a second, the next connection is lost, too.
    await eventually(async () => {
      await notify('stalled', 'heard again');
      expect(heard).toContain('heard again');
    });
    await listener.stop();
  });

  test('is tried for as long as the database is away, with one warning', async () => {
    const listener = startListener();
    let caughtUp = 0;
    const subscription = await listener.subscribe('away', () => {}, {
      onReconnect: () => {
        caughtUp += 1;
      },
    });
    await subscription.tested;
    proxy.refuse();
    await eventually(() => expect(log.count('warn', /was lost/)).toBe(1));
    await new Promise((resolve) => setTimeout(resolve, 200));
    proxy.accept();
    await eventually(() => expect(caughtUp).toBe(1));
    expect(log.count('warn', /./)).toBe(1);
    await listener.stop();
  });
});

describe('a subscription made while the database is away', () => {
  test('begins when it is back, and catches up then', async () => {
    proxy.refuse();
    const listener = startListener();
    const heard: string[] = [];
    let caughtUp = 0;
    const subscription = await listener.subscribe('early', (payload) => heard.push(payload), {
      onReconnect: () => {
        caughtUp += 1;
      },
    });
    expect(subscription.reliable).toBeNull();
    proxy.accept();
    await eventually(() => expect(caughtUp).toBe(1));
    await notify('early', 'x');
    await eventually(() => expect(heard).toEqual(['x']));
    expect(await subscription.tested).toBe(true);
    await listener.stop();
  });

  test('is refused for what waiting does not mend', async () => {
    const url = new URL(database.url);
    url.pathname = '/no_such_database';
    await using lost = postgres(database.url, { directUrl: url.toString(), logger: log });
    await expect(lost.listen('x', () => {})).rejects.toBeInstanceOf(DatabaseError);
  });
});

describe('stopping', () => {
  test('while connecting or waiting to connect leaves nothing behind', async () => {
    proxy.refuse();
    const listener = startListener();
    const subscription = await listener.subscribe('stopped', () => {});
    await listener.stop();
    await listener.stop();
    proxy.accept();
    expect(await subscription.tested).toBe(false);
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(proxy.accepted).toBe(0);
    const connecting = startListener();
    const early = connecting.subscribe('stopped', () => {}).catch((error: unknown) => error);
    await connecting.stop();
    const outcome = await early;
    expect(outcome instanceof Stopped || outcome instanceof ConnectionFailed).toBe(true);
    await eventually(() => expect(proxy.open).toBe(0));
  });

  test('the last subscription closes the connection', async () => {
    const listener = startListener();
    const one = await listener.subscribe('one', () => {});
    const two = await listener.subscribe('two', () => {});
    await one.tested;
    await one.stop();
    expect(proxy.open).toBe(1);
    await two.stop();
    await eventually(() => expect(proxy.open).toBe(0));
    const again = await listener.subscribe('three', () => {});
    expect(proxy.open).toBe(1);
    await again.stop();
    await listener.stop();
  });
});
