import { afterAll, beforeAll, expect, test } from 'vitest';
import { createQueue } from '../../src/queue/index.ts';
import { until } from '../support/eventually.ts';
import { makeStage, type Stage } from './stage.ts';

// Lists on any screen, in any zone, by key.
let stage: Stage;
let base: string;
const jobs: string[] = [];
beforeAll(async () => {
  stage = await makeStage();
  base = await stage.open();
  const mail = createQueue(stage.engine, 'mail', { kinds: { send: {} } });
  for (let n = 0; n < 4; n += 1) jobs.push((await mail.enqueue('send', { n })).id);
});
afterAll(() => stage?.stop());

test('what can be done with a row is in sight on a wide screen, and each row is a card on a narrow one', async () => {
  const { page, context } = await stage.visit(new URL('queues', base).href, { viewport: { width: 1024, height: 800 } });
  const pause = page.getByRole('button', { name: 'Pause mail' });
  const inSight = async (): Promise<boolean> => {
    const box = await pause.boundingBox();
    return box !== null && box.x >= 0 && box.x + box.width <= (page.viewportSize()?.width ?? 0);
  };
  await pause.waitFor();
  expect(await inSight()).toBe(true);
  await page.setViewportSize({ width: 320, height: 800 });
  await until('it is in sight', inSight);
  const card = page.getByRole('row').filter({ has: pause });
  const slots = await card.locator('td[data-title="Slots in use"]').boundingBox();
  expect(slots?.x).toBeGreaterThanOrEqual(0);
  expect((slots?.x ?? 0) + (slots?.width ?? Infinity)).toBeLessThanOrEqual(320);
  await page.goto(new URL('jobs', base).href);
  const [id = ''] = jobs;
  await page.getByRole('checkbox', { name: `Select ${id}` }).waitFor();
  const choice = await page.getByRole('checkbox', { name: `Select ${id}` }).boundingBox();
  expect(choice?.width).toBeGreaterThanOrEqual(16);
  expect((choice?.x ?? Infinity) + (choice?.width ?? 0)).toBeLessThanOrEqual(320);
  await context.close();
});

test('times are of the zone that is named, here or UTC, and moments where somebody wants them', async () => {
  const at = new URL(`jobs/${jobs[0]}`, base).href;
  const { page, context } = await stage.visit(at, { timezoneId: 'America/New_York' });
  const moment = page.locator('dd time').first();
  const utc = (await moment.getAttribute('datetime')) ?? '';
  const inZone = (timeZone: string): string => new Date(utc).toLocaleTimeString('en-GB', { timeZone });
  await moment.filter({ hasText: inZone('America/New_York') }).waitFor();
  expect(await moment.getAttribute('title')).toMatch(/ (EST|EDT|GMT-[45]) \(.*Z\)$/);
  await page.locator('h1').focus();
  await page.keyboard.press('z');
  await moment.filter({ hasText: inZone('UTC') }).waitFor();
  await page.getByLabel('Times are in UTC. Change').waitFor();
  await page.goto(new URL('jobs', base).href);
  await page.getByRole('table', { name: 'Jobs' }).getByText(/ago/).first().waitFor();
  await page.keyboard.press('.');
  await page
    .getByRole('table', { name: 'Jobs' })
    .getByText(/\d\d:\d\d:\d\d$/)
    .first()
    .waitFor();
  await page.reload();
  await page
    .getByRole('table', { name: 'Jobs' })
    .getByText(/\d\d:\d\d:\d\d$/)
    .first()
    .waitFor();
  await context.close();
});

test('a list is gone through by key, and what has the focus is opened', async () => {
  const { page, context } = await stage.visit(new URL('jobs', base).href);
  const [newest = '', next = ''] = [...jobs].reverse();
  await page.getByRole('table', { name: 'Jobs' }).waitFor();
  const focused = (): Promise<string | undefined> => page.evaluate(() => document.activeElement?.textContent);
  for (const key of ['j', 'j', 'j', 'k', 'k']) await page.keyboard.press(key);
  expect(await focused()).toBe(newest);
  await page.keyboard.press('j');
  expect(await focused()).toBe(next);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: `Job ${next}` }).waitFor();
  await context.close();
});
