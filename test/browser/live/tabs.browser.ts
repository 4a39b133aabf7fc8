import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { createHttp, nodeListener } from '../../../src/http/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { makeStage, type Stage, TOKEN } from '../stage.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await makeStage();
  await createQueue(stage.engine, 'mail', { kinds: { send: {} } }).register();
});
afterAll(() => stage?.stop());

test('tabs of one browser share the polls of a tab whose stream is held back, and say that they poll', async () => {
  const base = await stage.open();
  const { page, context } = await stage.visit('about:blank');
  onTestFinished(() => context.close());
  await context.route(/\/api\/v1\/events/, () => {});
  await page.goto(base);
  const other = await context.newPage();
  await other.goto(new URL('queues', base).href);
  await other.getByRole('button', { name: 'Pause mail' }).waitFor();
  for (const tab of [page, other]) await tab.getByText('Every 5 s').waitFor();
  await createQueue(stage.engine, 'mail', { kinds: { send: {} } }).pause();
  await other.getByRole('button', { name: 'Resume mail' }).waitFor();
});

test('two dashboards of one host show nothing of each other', async () => {
  const second = await makeStage();
  onTestFinished(() => second.stop());
  for (const name of ['a', 'b']) await createQueue(second.engine, name, { kinds: { send: {} } }).register();
  const options = { live: '500ms', auth: { tokens: [{ name: 'ada', token: TOKEN, role: 'admin' }] } } as const;
  const [one, two] = [
    createHttp(stage.engine, { ...options, basePath: '/one' }),
    createHttp(second.engine, { ...options, basePath: '/two' }),
  ];
  const [toOne, toTwo] = [nodeListener(one), nodeListener(two)];
  const server = createServer((request, response) =>
    request.url?.startsWith('/one') ? toOne(request, response) : toTwo(request, response),
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    await Promise.all([one.stop(), two.stop()]);
    server.closeAllConnections();
    server.close();
  });
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { page, context } = await stage.visit(`${base}/one/`);
  onTestFinished(() => context.close());
  const other = await context.newPage();
  await other.goto(`${base}/two/`);
  await page.getByText('1 queue, 0 workers').waitFor();
  await other.getByText('2 queues, 0 workers').waitFor();
  const mixed = other.getByText('1 queue, 0 workers').waitFor({ timeout: 5000 });
  await expect(mixed).rejects.toThrow(/Timeout/);
});
