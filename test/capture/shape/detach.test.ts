import { expect, onTestFinished, test } from 'vitest';
import { type Capture, type CaptureOptions, createCapture } from '../../../src/capture/index.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { until } from '../../support/eventually.ts';
import { testRole } from '../../support/servers/role.ts';
import { openScene } from '../scene.ts';
import { openWorld } from './world.ts';

const TABLES = `
create table root (id bigint primary key);
create table line (id bigint primary key, root bigint not null);
insert into root values (1), (2)`;

/** What a capture leaves in the database if it is not removed: functions, triggers, and rows by the number of a line. */
const LEFT = `
select p.proname::text as left from pg_proc p where p.proname like 'capture_root_%'
union all select t.tgname::text from pg_trigger t where t.tgname like 'pawl_capture_%'
union all select 'definition' from pawl.capture_definition union all select 'line' from pawl.capture_line
union all select 'dirty ' || d.key from pawl.capture_dirty d`;

test('a capture that is detached while another program applies it is removed with what that program added', async () => {
  const { engine, query } = await openWorld(TABLES);
  const declare = (via: CaptureOptions['via']): Capture => {
    const capture = createCapture(engine, { entity: 'root', root: 'root', via });
    capture.follow({ name: 'follower', handler: async () => {} });
    return capture;
  };
  const waiting = async (n: number): Promise<boolean> => {
    const rows = await query(
      'select from pg_locks l join pg_database d on d.oid = l.database where d.datname = current_database() and not l.granted',
    );
    return rows.length === n;
  };
  const [old, next] = [declare({}), declare({ line: 'root' })];
  await old.apply();
  await query('begin; insert into root values (3)');
  const applied = next.apply();
  await until('apply waits for the writer', () => waiting(1));
  const detached = old.detach();
  await until('detach waits, too', () => waiting(2));
  await query('commit');
  await applied;
  await detached;
  await query('insert into line values (1, 1)');
  expect(await query(LEFT)).toEqual([]);
});

test.each(['apply', 'detach'] as const)(
  'a writer that has locked one table may go on to another while %s waits for it',
  async (call) => {
    const { engine, query } = await openWorld(TABLES);
    const capture = createCapture(engine, { entity: 'root', root: 'root', via: { line: 'root' } });
    if (call === 'detach') await capture.apply();
    // The tables are locked in the order of their names, and functions are dropped in the order of their numbers.
    const [first, last] = ['insert into line values (1, 1)', 'insert into root values (3)'];
    await query(`begin; ${call === 'apply' ? last : first}`);
    const changed = capture[call]();
    await until('it has looked for a deadlock without success', async () => {
      const rows = await query(
        `select from pg_locks l join pg_database d on d.oid = l.database
      where d.datname = current_database() and not l.granted and l.waitstart < clock_timestamp() - interval '1.2 s'`,
      );
      return rows.length === 1;
    });
    await query(call === 'apply' ? first : last);
    await query('commit');
    await changed;
  },
);

test('a role that may drop the functions may detach, also if the tables belong to others', async () => {
  const { url, capture, client, query } = await openScene();
  await capture.apply();
  const role = await testRole(url);
  await client.query(`grant pawl_capture to ${role.name}; grant usage on schema pawl to ${role.name};
    grant select, delete on all tables in schema pawl to ${role.name}`);
  const user = postgres(role.url, { max: 1 });
  onTestFinished(() => user.stop());
  await createCapture(user, { entity: 'order', root: 'orders' }).detach();
  expect(await query(LEFT.replace('capture_root_', 'capture_order_'))).toEqual([]);
});
