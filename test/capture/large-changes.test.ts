import { expect, test } from 'vitest';
import { createCapture } from '../../src/capture/index.ts';
import { openScene } from './scene.ts';

const MIB = 1024 ** 2;

test('changes that are large come in smaller batches, all of them and in order', async () => {
  const scene = await openScene();
  const { client, engine } = scene;
  await client.query('create table page (id int primary key, text text not null)');
  const capture = createCapture(engine, {
    entity: 'page',
    root: 'page',
    history: { page: { rows: 'both', columns: ['text'] } },
  });
  const batches: { ids: string[]; bytes: number }[] = [];
  const follower = capture.follow({
    name: 'copy',
    handler: async (changes) => {
      const bytes = changes.reduce((sum, { before, after }) => sum + JSON.stringify([before, after]).length, 0);
      batches.push({ ids: changes.map(({ key }) => key ?? ''), bytes });
    },
  });
  await capture.apply();
  await client.query(`insert into page select i, repeat('a', 65536) from generate_series(1, 400) i`);
  await client.query(`update page set text = repeat('b', 65536)`);
  let given: number;
  do given = await follower.next();
  while (given > 0);
  const order = Array.from({ length: 400 }, (_, n) => String(n + 1));
  expect(batches.flatMap(({ ids }) => ids)).toEqual([...order, ...order]);
  for (const { bytes } of batches) expect(bytes).toBeLessThan(33 * MIB);
  expect(batches.length).toBe(3);
});
