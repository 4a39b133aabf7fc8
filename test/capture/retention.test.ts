import { expect, test } from 'vitest';
import { createCapture } from '../../src/capture/index.ts';
import { openWorld } from './shape/world.ts';

test('changes of months without a partition are dropped, too, but none that a follower has not received', async () => {
  const { engine, query } = await openWorld(
    'create table root (id bigint primary key); create table other (id bigint primary key)',
  );
  const capture = createCapture(engine, { entity: 'root', root: 'root', keep: '30d' });
  const follower = capture.follow({ name: 'follower', handler: async () => {} });
  await capture.apply();
  const kept = createCapture(engine, { entity: 'other', root: 'other', history: { other: 'keys' } });
  await kept.apply();
  await query(`insert into pawl.capture_change (capture, source, op, key, at)
    select d.id, 0, 'insert', d.entity || a.days, now() - a.days * interval '1 day'
    from pawl.capture_definition d cross join (values (400), (0)) a (days)`);
  const keys = async (): Promise<string[]> =>
    (await query<{ key: string }>('select key from pawl.capture_change order by key')).map(({ key }) => key);
  expect(await capture.prune()).toEqual([]);
  expect(await keys()).toEqual(['other0', 'other400', 'root0', 'root400']);
  while ((await follower.next()) > 0);
  expect(await capture.prune()).toEqual(['capture_change_rest']);
  expect(await keys()).toEqual(['other0', 'other400', 'root0']);
});
