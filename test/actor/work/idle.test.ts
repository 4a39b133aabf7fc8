import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { actor } from '../../../src/actor/index.ts';
import { probe } from '../../../src/base/probe.ts';
import { until } from '../../support/eventually.ts';
import { LONG } from '../../support/long.ts';
import { pagesRead } from '../../support/pages.ts';
import { openScene } from '../scene.ts';

const Thing = actor('thing', {
  semaphores: ['go'],
  initial: 'only',
  states: (state) => ({
    only: state({
      run: (a) => {
        a.decr('go');
        return a.hibernate();
      },
    }),
  }),
});

const MANY = LONG ? 1_000_000 : 100_000;

// Invariant A24.
test('actors that hibernate cost no look: an idle dispatcher looks once a poll, however many there are', async () => {
  const scene = await openScene([Thing]);
  await scene.actors.register();
  using looks = probe.watch('actor.claimed');
  const dispatcher = await scene.run({ poll: '200ms' });
  const one = await scene.actors.create(Thing, {});
  await until('it hibernates', async () => (await scene.actors.get(one)).status === 'hibernating');
  await scene.query(
    `insert into pawl.actor_instance (id, entered_at, created_at, type, version, state, fields)
     select nextval('pawl.actor_id'), clock_timestamp(), clock_timestamp(), t.id, 1, 'only', '{}' from pawl.actor_type t, generate_series(1, $1::int)`,
    [MANY],
  );
  const before = looks.hits.length;
  const begun = performance.now();
  await until('it has looked ten times', () => looks.hits.length >= before + 10);
  // A poll is 200 ms, a quarter more or less; somebody who spins would have done it in 10 ms.
  expect(performance.now() - begun).toBeGreaterThan(1000);
  await dispatcher.stop();
});

// Invariant A24.
test('a claim reads as few pages with many that hibernate or nap as with few, without statistics', async () => {
  const scene = await openScene([Thing]);
  await scene.actors.register();
  const client = new pg.Client({ connectionString: scene.url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query('alter table pawl.actor_instance set (autovacuum_enabled = off)');
  await client.query(
    `insert into pawl.actor_worker (id, pid, concurrency, lease, expires_at, wants_notify, host, types, knows)
     values (0, 1, 1, '1 h', clock_timestamp() + interval '1 h', false, 'test', '{}', '{}')`,
  );
  const fill = async (n: number, wake: string): Promise<void> => {
    await client.query(
      `insert into pawl.actor_instance (id, entered_at, created_at, type, version, state, fields, wake_at)
       select nextval('pawl.actor_id'), clock_timestamp(), clock_timestamp(), t.id, 1, 'only', '{}', ${wake} from pawl.actor_type t, generate_series(1, ${n})`,
    );
  };
  const pages = (): Promise<number> =>
    pagesRead(client, 'select pawl.actor_claim(0, array(select id from pawl.actor_type), 20)');
  await fill(100, `clock_timestamp() - interval '1 s'`);
  // 154 to 186 pages, and up to 402 where the pages of the actors are full, so that a claim searches for room for what it writes.
  // A scan of what hibernates is thousands.
  const few = (await pages()) + 400;
  await fill(MANY, 'null');
  expect(await pages()).toBeLessThan(few);
  await fill(MANY / 2, `clock_timestamp() + interval '1 day'`);
  expect(await pages()).toBeLessThan(few);
  await fill(MANY / 2, `clock_timestamp() - interval '1 s'`);
  expect(await pages()).toBeLessThan(few);
});
