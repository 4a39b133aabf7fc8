import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Actors, actor, createActors, state } from '../../../src/actor/index.ts';
import { type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { createHttp, serve } from '../../../src/http/index.ts';
import { createQueue, type DynamoQueue } from '../../../src/queue/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { OPEN_DOOR } from '../../support/servers/open-door.ts';
import { launch, type Visit, watch } from '../scene.ts';

// The dashboard of a table of DynamoDB: what people see of its actors, and that nothing asks for what the table does not have.
const Order = actor('order', {
  semaphores: ['paid'],
  initial: 'waiting',
  states: {
    waiting: state({
      to: ['sent'],
      run: (a) => {
        a.page({ tag: `unpaid-${a.id}`, summary: 'not paid yet' });
        return a.take('paid') ? a.to('sent') : a.hibernate();
      },
    }),
    sent: state({ run: (a) => a.done('sent') }),
  },
});

const local = await sharedDynamo();
const closers: (() => Promise<unknown>)[] = [];
let browser: Browser;
let actors: Actors;
let mail: DynamoQueue<{ readonly send: object }>;
let base: string;

beforeAll(async () => {
  const engine: DynamoEngine = dynamodb(dynamoClient(local.endpoint), { table: 'dashboard' });
  await engine.migrate();
  browser = await launch();
  actors = createActors(engine, [Order], { shards: 1 });
  const dispatcher = actors.run({ poll: '200ms' });
  closers.push(() => dispatcher.stop());
  mail = createQueue(engine, 'mail', { kinds: { send: {} } });
  await mail.enqueue('send', { to: 'ada' });
  const served = await serve(
    createHttp(engine, { auth: OPEN_DOOR, live: '500ms', rate: { burst: 10_000, perSecond: 1000 }, actors }),
  );
  closers.push(() => served.stop());
  base = served.url;
});

afterAll(async () => {
  await browser?.close();
  for (const close of closers.reverse()) await close();
});

async function visit(path: string): Promise<Visit> {
  const context = await browser.newContext();
  const seen = watch(context, await context.newPage());
  seen.page.on('response', (answer) => {
    if (answer.status() >= 400) seen.complaints.push(`${answer.status()} ${answer.url()}`);
  });
  await seen.page.goto(new URL(path, base).href);
  return seen;
}

test('an actor is listed and shown, and its end is seen', async () => {
  const { id } = await actors.create(Order, { total: 7 });
  await actors.waitFor(id, { status: 'hibernating' });
  const { page, complaints } = await visit('actors');
  await page.getByRole('heading', { name: 'Actors', exact: true }).waitFor();
  await page.getByRole('link', { name: id, exact: true }).first().click();
  await page.getByRole('heading', { name: `order ${id}` }).waitFor();
  await page.getByText('hibernating').first().waitFor();
  await actors.incr(id, 'paid');
  await actors.waitFor(id);
  await page.getByText('final').first().waitFor();
  expect(complaints).toEqual([]);
});

test.each(['', 'queues', 'pages', 'workers', 'jobs'])('the page "%s" has no complaint', async (path) => {
  const { page, complaints } = await visit(path);
  await page.getByRole('heading', { level: 1 }).first().waitFor();
  await page.waitForLoadState('networkidle');
  expect(complaints).toEqual([]);
});

test('the page of a job shows what waits for it, its neighbours and its batch', async () => {
  const batch = await mail.batch();
  const id = await batch.enqueue({ kind: 'send', payload: 1, key: 'k' });
  await mail.enqueue('send', 2, { key: 'k' });
  const child = await mail.enqueue('send', 3, { after: [id] });
  const { page, complaints } = await visit(`jobs/mail:${id}`);
  await page.getByText('These wait for it').first().waitFor();
  await page
    .getByRole('link', { name: `mail:${child.id}` })
    .first()
    .waitFor();
  await page.getByText('Other jobs of key k').first().waitFor();
  await page
    .getByRole('link', { name: `mail:${batch.id}` })
    .first()
    .click();
  await page.getByRole('heading', { name: `mail:${batch.id}` }).waitFor();
  await page.waitForLoadState('networkidle');
  expect(complaints).toEqual([]);
});
