import { sql as drizzleSql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { ConnectionFailed, InvalidInput, SerializationFailed } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { type Proxy, startProxy } from '../../support/proxy.ts';

const sql = (text: string) => statement('test.adhoc', text, { prepare: false });
const caught = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  );

let database: Awaited<ReturnType<typeof freshDatabase>>;
let engine: PostgresEngine;
let proxy: Proxy;
let remote: PostgresEngine;

beforeAll(async () => {
  database = await freshDatabase({ migrated: false });
  engine = postgres(database.url);
  await engine.query(sql('create table counter (id int primary key, n int not null)'));
});

test('the lost connection of another client is not taken for its own: it is not repeated, and nothing is said of what was written there', async () => {
  let runs = 0;
  const error = await caught(
    engine.transaction(async () => {
      runs += 1;
      const other = new pg.Client(database.url);
      other.on('error', () => {});
      await other.connect();
      await other.query('select pg_terminate_backend(pg_backend_pid())');
    }),
  );
  expect(runs).toBe(1);
  expect(error).toMatchObject({ name: 'ConnectionFailed', outcome: 'unknown' });
});

test('its own lost connection has written nothing, also if the error is that of the driver, and it is repeated', async () => {
  let runs = 0;
  await engine.transaction(async (tx) => {
    runs += 1;
    if (runs === 1) await tx.client.query('select pg_terminate_backend(pg_backend_pid())');
  });
  expect(runs).toBe(2);
});

test('the client of a transaction takes plain SQL, and may be passed on as one of node-postgres', async () => {
  const rows = await engine.transaction(async (tx) => {
    const mine = await tx.client.query<{ n: number }>(
      'update counter set n = n + $2 where id = $1 returning n',
      [1, 5],
    );
    const theirs = await drizzle(tx.client as pg.PoolClient).execute(drizzleSql`select n from counter where id = 1`);
    return [mine.rows[0]?.n, mine.rowCount, theirs.rows[0]?.n];
  });
  expect(rows).toEqual([5, 1, 5]);
});

test('a table that was changed under a prepared statement fails one transaction of a connection, and none after it', async () => {
  await using one = postgres(database.url, { max: 1 });
  await engine.query(sql('create table shape (n int)'));
  await engine.query(sql('insert into shape values (1)'));
  const all = statement('test.shape', 'select * from shape', { isOwn: false });
  const read = () => one.transaction((tx) => tx.query(all));
  expect(await read()).toEqual([{ n: 1 }]);
  await engine.query(sql('alter table shape add column m int'));
  expect(String(await caught(read()))).toContain('cached plan');
  expect(await read()).toEqual([{ n: 1, m: null }]);
});

beforeEach(async () => {
  proxy = await startProxy(database.url);
  remote = postgres(proxy.url);
  await engine.query(sql('truncate counter'));
  await engine.query(sql('insert into counter values (1, 0), (2, 0)'));
});

afterEach(async () => {
  await remote.stop();
  await proxy.stop();
});

afterAll(async () => {
  await engine.stop();
  await database.drop();
});

async function count(id = 1): Promise<number | undefined> {
  const [row] = await engine.query<{ n: number }>(sql('select n from counter where id = $1'), [id]);
  return row?.n;
}

const increment = sql('update counter set n = n + 1 where id = 1');

describe('a transaction', () => {
  test('commits what it did, and rolls back on any error, which is given back as it was', async () => {
    expect(await engine.transaction((tx) => tx.query(increment).then(() => 'done'))).toBe('done');
    expect(await count()).toBe(1);
    const mine = new RangeError('mine');
    const error = await caught(
      engine.transaction(async (tx) => {
        await tx.query(increment);
        throw mine;
      }),
    );
    expect(error).toBe(mine);
    expect(await count()).toBe(1);
  });

  test('is repeated after a lost serialization race until all have won', async () => {
    let runs = 0;
    const add = () =>
      engine.transaction(
        async (tx) => {
          runs += 1;
          const [row] = await tx.query<{ n: number }>(sql('select n from counter where id = 1'));
          // All have read the same before the first writes, so that there is a race to lose.
          await eventually(() => expect(runs).toBeGreaterThanOrEqual(4));
          await tx.query(sql('update counter set n = $1 where id = 1'), [(row?.n ?? 0) + 1]);
        },
        { isolation: 'serializable', retries: 50 },
      );
    await Promise.all([add(), add(), add(), add()]);
    expect(await count()).toBe(4);
    expect(runs).toBeGreaterThan(4);
  });

  test('is repeated after a deadlock', async () => {
    let runs = 0;
    const met = new Set<number>();
    const updates: Promise<void>[] = [1, 2].map((own) =>
      engine.transaction(async (tx) => {
        runs += 1;
        // The one that is left needs a moment to wake up: a repetition at once would take its row away, and meet it again.
        if (met.has(own)) await updates[2 - own];
        await tx.query(sql('update counter set n = n + 1 where id = $1'), [own]);
        met.add(own);
        await eventually(() => expect(met.size).toBe(2));
        await tx.query(sql('update counter set n = n + 1 where id = $1'), [3 - own]);
      }),
    );
    await Promise.all(updates);
    expect([await count(1), await count(2), runs]).toEqual([2, 2, 3]);
  });

  test('gives up after its retries, with nothing written', async () => {
    let runs = 0;
    const error = await caught(
      engine.transaction(
        async (tx) => {
          runs += 1;
          await tx.query(increment);
          await tx.query(sql("do $$ begin raise exception 'lost' using errcode = '40001'; end $$"));
        },
        { retries: 2 },
      ),
    );
    expect(error).toBeInstanceOf(SerializationFailed);
    expect([runs, await count()]).toEqual([3, 0]);
  });

  test('is not committed silently when a failed statement was swallowed', async () => {
    const error = await caught(
      engine.transaction(async (tx) => {
        await tx.query(increment);
        await caught(tx.query(sql('select 1/0')));
      }),
    );
    expect(error).toMatchObject({ code: 'database_error', sqlState: '22012' });
    expect(await count()).toBe(0);
  });

  test('refuses a query that comes after its end', async () => {
    let late: Promise<unknown> | undefined;
    await engine.transaction((tx) => {
      late = new Promise((resolve) => setTimeout(resolve, 20)).then(() => tx.query(increment));
      late.catch(() => {});
      return Promise.resolve();
    });
    await expect(late).rejects.toThrow(/transaction is over/);
    expect(await count()).toBe(0);
  });

  test('may be read only, and refuses an isolation level that does not exist', async () => {
    const error = await caught(engine.transaction((tx) => tx.query(increment), { readOnly: true }));
    expect(error).toMatchObject({ code: 'connection_failed', outcome: 'nothing_written' });
    const isolation: string = 'chaos';
    await expect(
      engine.transaction(() => Promise.resolve(), { isolation: isolation as 'serializable' }),
    ).rejects.toBeInstanceOf(InvalidInput);
  });
});

describe('a transaction whose connection breaks', () => {
  test('before COMMIT is repeated on a new connection', async () => {
    let runs = 0;
    await remote.transaction(async (tx) => {
      runs += 1;
      await tx.query(increment);
      if (runs === 1) {
        proxy.cut();
      }
      await tx.query(sql('select 1'));
    });
    expect([runs, await count()]).toEqual([2, 1]);
  });

  test('between its last statement and COMMIT is repeated too', async () => {
    let runs = 0;
    await remote.transaction(async (tx) => {
      runs += 1;
      await tx.query(increment);
      if (runs === 1) {
        const [row] = await tx.query<{ pid: number }>(sql('select pg_backend_pid() as pid'));
        const lost = new Promise((resolve) => tx.client.on('error', resolve));
        await engine.query(sql('select pg_terminate_backend($1)'), [row?.pid]);
        await lost;
      }
    });
    expect([runs, await count()]).toEqual([2, 1]);
  });

  test('before COMMIT says that nothing was committed when there is no retry left', async () => {
    const error = await caught(
      remote.transaction(
        async (tx) => {
          await tx.query(increment);
          proxy.cut();
          await tx.query(increment);
        },
        { retries: 0 },
      ),
    );
    expect(error).toMatchObject({ code: 'connection_failed', outcome: 'nothing_written' });
    expect(await count()).toBe(0);
  });

  test('with the answer to COMMIT lost is never repeated: it happened, and the outcome is called unknown', async () => {
    let runs = 0;
    proxy.loseAnswerTo('commit\0');
    const error = await caught(
      remote.transaction(async (tx) => {
        runs += 1;
        await tx.query(increment);
      }),
    );
    expect(error).toBeInstanceOf(ConnectionFailed);
    expect(error).toMatchObject({ name: 'ConnectionFailed', outcome: 'unknown' });
    expect(String(error)).toContain('outcome is unknown');
    await eventually(async () => expect(await count()).toBe(1));
    expect(runs).toBe(1);
  });

  test('with COMMIT itself lost on the way is never repeated either: the two cannot be told apart', async () => {
    let runs = 0;
    proxy.loseRequest('commit\0');
    const error = await caught(
      remote.transaction(async (tx) => {
        runs += 1;
        await tx.query(increment);
      }),
    );
    expect(error).toMatchObject({ code: 'connection_failed', outcome: 'unknown' });
    expect([runs, await count()]).toEqual([1, 0]);
  });
});

describe('a transaction with a signal', () => {
  test('cancels its running statement on the server and rolls back', async () => {
    const controller = new AbortController();
    const reason = new Error('enough');
    const running = caught(
      engine.transaction(
        async (tx) => {
          await tx.query(increment);
          await tx.query(sql('select pg_sleep(60) /* to be cancelled */'));
        },
        { signal: controller.signal },
      ),
    );
    const find = sql(
      "select 1 from pg_stat_activity where datname = current_database() and query like '%to be cancelled%' and pid <> pg_backend_pid()",
    );
    await eventually(async () => expect(await engine.query(find)).toHaveLength(1));
    controller.abort(reason);
    expect(await running).toBe(reason);
    expect(await count()).toBe(0);
    await eventually(async () => expect(await engine.query(find)).toHaveLength(0));
  });

  test('gives up within seconds on a connection that has gone silent', async () => {
    const controller = new AbortController();
    const reason = new Error('enough');
    const running = caught(
      remote.transaction(
        async (tx) => {
          await tx.query(increment);
          proxy.stall();
          setTimeout(() => controller.abort(reason), 20);
          await tx.query(increment);
        },
        { signal: controller.signal },
      ),
    );
    expect(await running).toBe(reason);
    proxy.cut();
    await eventually(async () => expect(await count()).toBe(0));
  });

  test('gives up its wait for a connection, runs nothing, and leaves the connection to others', async () => {
    await using one = postgres(database.url, { max: 1 });
    const held = await one.connect();
    const [controller, reason] = [new AbortController(), new Error('enough')];
    let runs = 0;
    const fn = async (): Promise<void> => void (runs += 1);
    const waiting = caught(one.transaction(fn, { signal: controller.signal }));
    controller.abort(reason);
    held.release();
    expect(await waiting).toBe(reason);
    expect(runs).toBe(0);
    await one.transaction(fn);
  });

  test('runs nothing when it was aborted before', async () => {
    let runs = 0;
    const error = await caught(
      engine.transaction(
        () => {
          runs += 1;
          return Promise.resolve();
        },
        { signal: AbortSignal.abort(new Error('early')) },
      ),
    );
    expect([String(error), runs]).toEqual(['Error: early', 0]);
  });
});
