import { afterAll, beforeAll, expect, test } from 'vitest';
import { createQueue, createTopic, type Queue } from '../../src/queue/index.ts';
import { eventually } from '../support/eventually.ts';
import { makeStage, type Stage } from './stage.ts';

// Flows, batches, topics and what is removed, as people see and do it.
const kinds = { pack: {}, ship: {} } as const;

let stage: Stage;
let base: string;
let queue: Queue<typeof kinds>;
beforeAll(async () => {
  stage = await makeStage();
  base = await stage.open();
  queue = createQueue(stage.engine, 'orders', { kinds });
  await queue.register();
});
afterAll(() => stage?.stop());

const at = (path: string): string => new URL(path, base).href;

test('a job of a flow shows what it comes after, what waits for it, and its own options', async () => {
  const ids = await queue.flow([
    { name: 'pack', kind: 'pack', payload: 1 },
    { name: 'ship', kind: 'ship', payload: 2, after: ['pack'], attempts: 2, timeout: '30s', tags: ['blue'] },
  ]);
  const { page, context, complaints } = await stage.visit(at(`jobs/${ids['ship']}`));
  const flow = page.locator('.card', { hasText: 'Flow' });
  await flow.getByRole('link', { name: ids['pack'] ?? '', exact: true }).waitFor();
  await page.getByText('2 attempts, a timeout of 30s').waitFor();
  await page.getByText('blue').first().waitFor();
  await flow.getByRole('link', { name: ids['pack'] ?? '', exact: true }).click();
  await page
    .locator('.card', { hasText: 'These wait for it' })
    .getByRole('link', { name: ids['ship'] ?? '', exact: true })
    .waitFor();
  expect(complaints).toEqual([]);
  await context.close();
});

test('a batch shows how far it is, and is sealed', async () => {
  const batch = await queue.batch();
  const member = await batch.enqueue({ kind: 'pack', payload: 1 });
  const { page, context, complaints } = await stage.visit(at(`jobs/${member}`));
  await page.getByRole('link', { name: `batch ${batch.id}` }).click();
  await page.getByText('open', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Seal' }).click();
  await page.getByRole('button', { name: 'Seal it' }).click();
  await page.getByText('sealed', { exact: true }).waitFor();
  expect((await batch.progress()).sealedAt).not.toBeNull();
  expect(complaints).toEqual([]);
  await context.close();
});

test('topics show their queues', async () => {
  await createTopic(stage.engine, 'sold').subscribe('orders', 'pack');
  const { page, context, complaints } = await stage.visit(at('topics'));
  await page.getByRole('row', { name: /sold.*orders.*pack/ }).waitFor();
  expect(complaints).toEqual([]);
  await context.close();
});

test('a job is erased, and the audit says who did it', async () => {
  const { id } = await queue.enqueue('pack', 1);
  const { page, context } = await stage.visit(at(`jobs/${id}`));
  await page.getByRole('button', { name: 'Erase', exact: true }).click();
  await page.getByRole('button', { name: 'Erase it' }).click();
  await page.waitForURL(/jobs$/);
  await eventually(() => expect(queue.get(id)).rejects.toThrow('there is no job'));
  await page.goto(at('admin'));
  await page.getByText('job:erase').first().waitFor();
  await context.close();
});

test('all that a search finds is erased', async () => {
  const other = createQueue(stage.engine, 'returns', { kinds });
  await other.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'pack', payload }) as const));
  const { page, context } = await stage.visit(at('jobs?queue=returns&q=status%3Anew'));
  await page.getByRole('button', { name: 'Erase all…' }).click();
  await page.getByRole('button', { name: 'Erase 3 jobs' }).click();
  await eventually(async () => expect((await other.search('')).jobs).toEqual([]));
  await context.close();
});

test('a queue that no program uses is removed', async () => {
  await createQueue(stage.engine, 'old', { kinds }).register();
  const { page, context } = await stage.visit(at('queues/old'));
  await page.getByRole('button', { name: 'Remove', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('textbox').fill('old');
  await dialog.getByRole('button', { name: 'Remove it' }).click();
  await page.waitForURL(/queues$/);
  await context.close();
});
