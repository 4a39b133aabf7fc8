import { expect, onTestFinished, test } from 'vitest';
import { createCapture, createCaptureAdmin } from '../../src/capture/index.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
import { until } from '../support/eventually.ts';
import { recordLog } from '../support/log.ts';
import { testRole } from '../support/servers/role.ts';
import { build, openScene, TARGET, VIA } from './scene.ts';

/** The rights that SECURITY.md grants to the role of a worker, and rights on the tables. */
const GRANTS = (role: string): string => `
grant usage on schema pawl to ${role};
grant select, insert, update, delete on all tables in schema pawl to ${role};
grant usage, select on all sequences in schema pawl to ${role};
grant execute on all functions in schema pawl to ${role};
grant select on all tables in schema public to ${role};
grant insert, update, delete on order_search to ${role}`;

test('an entity that row-level security hides from a worker is an error and keeps its row, and verify warns of it', async () => {
  const scene = await openScene();
  const { capture, projection, client, diff } = scene;
  await capture.apply();
  await projection.backfill();
  const role = await testRole(scene.url);
  await client.query(`${GRANTS(role.name)};
    alter table orders enable row level security;
    create policy partly on orders using (status <> 'secret')`);
  const engine = postgres(role.url, { logger: recordLog() });
  onTestFinished(() => engine.stop());
  const own = createCapture(engine, { entity: 'order', root: 'orders', via: VIA }).project({ ...TARGET, build });
  expect(await createCaptureAdmin(engine).verify('order')).toEqual([
    { kind: 'policy', object: '"public"."orders"', problem: expect.stringContaining('BYPASSRLS'), sql: [] },
  ]);

  const failed: string[] = [];
  own.events.on('failed', ({ key, error }) => failed.push(`${key}: ${String(error)}`));
  const errors: string[] = [];
  own.events.on('error', ({ error }) => errors.push(String(error)));
  const worker = own.run({ poll: '20ms' });
  onTestFinished(() => worker.stop());
  await client.query("update orders set status = 'secret' where id = 1");
  await until('the entity has failed', () => failed.some((text) => /^1: .*row-level security policy/.test(text)));
  // Following a link through this table would lead to no entity.
  await client.query("update customer set name = 'renamed' where id = 5");
  await until('the link could not be followed', () => errors.some((text) => /row-level security policy/.test(text)));
  await expect(own.reconcile()).rejects.toThrow(/row-level security policy/);
  expect(await scene.query('select status from order_search where id = 1')).toEqual([{ status: 'new' }]);
  expect(await scene.query('select count(*)::int as n from order_search')).toEqual([{ n: 100 }]);

  await client.query(`alter role ${role.name} bypassrls`);
  await client.query("update pawl.capture_retry set run_at = '-infinity'");
  await until('every row is right', async () => (await diff()) === 0);
  expect(await own.reconcile()).toMatchObject({ drifted: 0 });
  expect(await createCaptureAdmin(engine).verify('order')).toEqual([]);
});
