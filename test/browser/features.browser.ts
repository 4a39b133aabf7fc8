import { randomUUID } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import * as v from 'valibot';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { statement } from '../../src/engine/postgres/index.ts';
import { createQueue } from '../../src/queue/index.ts';
import { until } from '../support/eventually.ts';
import { makeScene, type Scene, type Visit } from './scene.ts';

// What the pages are for beyond looking: views, columns, snoozing, forms, charts by the hour, files.
let scene: Scene;
let base: string;
beforeAll(async () => {
  scene = await makeScene();
  base = await scene.open({});
});
afterAll(() => scene?.stop());

async function on(path: string): Promise<Visit> {
  return scene.visit(new URL(path, base).href);
}

function headers(page: Page, caption: string): Promise<string[]> {
  return page.getByRole('table', { name: caption }).locator('th').allTextContents();
}

/** Unfolds a menu; what is in it can be pressed then. */
async function open(page: Page, title: string): Promise<void> {
  await page.locator('summary', { hasText: title }).first().click();
}

describe('a list of jobs', () => {
  test('the columns that somebody chose stand in the address', async () => {
    const { page, context, complaints } = await on('jobs?queue=mail');
    await page.getByRole('table', { name: 'Jobs' }).waitFor();
    expect(await headers(page, 'Jobs')).not.toContain('Priority');
    await open(page, 'Columns');
    await page.getByLabel('Priority').check();
    await page.getByLabel('Settled').uncheck();
    await page.waitForURL(/columns=/);
    await page.reload();
    await page.getByRole('table', { name: 'Jobs' }).waitFor();
    expect(await headers(page, 'Jobs')).toEqual(
      expect.arrayContaining(['Job', 'Status', 'Priority', 'Enqueued', 'Error']),
    );
    expect(await headers(page, 'Jobs')).not.toContain('Settled');
    await open(page, 'Columns');
    await page.getByRole('button', { name: 'As usual' }).click();
    await page.waitForURL((url) => !url.search.includes('columns'));
    expect(complaints).toEqual([]);
    await context.close();
  });

  test('a view that is saved comes back by its name, and is forgotten when told to', async () => {
    const { page, context } = await on('jobs?q=status:error&queue=mail');
    await open(page, 'Views');
    await page.getByRole('button', { name: 'Save this view' }).click();
    await page.getByLabel('Name').fill('bad mail');
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await page.getByText('view "bad mail" is saved').waitFor();
    await page.goto(new URL('jobs', base).href);
    await open(page, 'Views');
    await page.getByRole('button', { name: 'bad mail', exact: true }).click();
    await page.waitForURL(/q=status%3Aerror&queue=mail/);
    await page.getByText('mailbox unavailable').first().waitFor();
    await open(page, 'Views');
    await page.getByRole('button', { name: 'Forget view bad mail' }).click();
    expect(await page.getByRole('button', { name: 'bad mail', exact: true }).count()).toBe(0);
    await context.close();
  });
});

test('a search is copied as a command, for curl and for a program', async () => {
  const { page, context } = await on(`jobs?q=${encodeURIComponent('status:error "it\'s"')}&queue=mail`);
  await open(page, 'Copy as');
  const says = (text: string): Promise<void> => page.locator('code', { hasText: text }).waitFor();
  await says(`pawl job search 'status:error "it'\\''s"' --queue 'mail'`);
  await says(`curl '${new URL('api/v1/jobs?q=', base).href}`);
  await says(`createQueueAdmin(engine).search("status:error \\"it's\\"", { queue: "mail" })`);
  await page.getByRole('button', { name: /^CLI/ }).click();
  await page.getByText('CLI copied').waitFor();
  await context.close();
});

test.each([
  ['queues', 'pawl queue stats', 'createQueueAdmin(engine).list()'],
  ['schedules', 'api/v1/schedules', 'createQueueAdmin(engine).schedules()'],
  ['workers', 'api/v1/workers', 'createQueueAdmin(engine).workers()'],
  ['locks?name=re', 'api/v1/locks?name=re', 'createLocks(engine).query()'],
  ['pages?status=all', 'pawl page list --resolved', 'pages({ resolved: true })'],
  ['history?part=lock', 'api/v1/history?part=lock', 'curl'],
  ['files', 'pawl file list', 'createFiles(engine, store'],
  ['captures', 'pawl capture status', 'createCaptureAdmin(engine).status('],
  ['admin', 'pawl doctor', 'engine.status()'],
])('%s is copied for use elsewhere, too', async (path, ...texts) => {
  const { page, context } = await on(path);
  await open(page, 'Copy as');
  for (const text of texts) await page.locator('code', { hasText: text }).first().waitFor();
  await context.close();
});

test('a job is added with what is wrong below its field, and with the payload of another to the letter', async () => {
  const { page, context } = await on('queues/thumbnails');
  const long = '{"image": "huge.png", "bytes": 12345678901234567890123}';
  await page.getByRole('button', { name: 'Add a job' }).click();
  const dialog = page.getByRole('dialog');
  const [payload, key] = [dialog.getByLabel('Payload, as JSON'), dialog.getByLabel(/^Key/)];
  await payload.fill('{"image": }');
  await dialog.getByRole('button', { name: 'Add', exact: true }).click();
  await dialog.locator('label', { hasText: 'Payload' }).getByRole('alert').waitFor();
  await payload.fill(long);
  await key.fill('k'.repeat(1001));
  await dialog.getByRole('button', { name: 'Add', exact: true }).click();
  await dialog.locator('label', { hasText: 'Key' }).getByText(/1000/).waitFor();
  expect(await dialog.locator('label', { hasText: 'Payload' }).getByRole('alert').count()).toBe(0);
  await key.fill('');
  await dialog.getByRole('button', { name: 'Add', exact: true }).click();
  const said = await page.getByText(/^job \d+ is added$/).textContent();
  await page.goto(new URL(`jobs/${/\d+/.exec(said ?? '')?.[0]}`, base).href);
  await page.getByRole('link', { name: 'Another like it' }).click();
  await page.waitForFunction(() => document.querySelector('textarea')?.value.includes('12345678901234567890123'));
  await page.keyboard.press('Escape');
  await page.waitForURL((url) => !url.search.includes('add='));
  await context.close();
});

test('a payload that its schema refuses is said to be so below its field, and with which part of it', async () => {
  const payload = v.object({ to: v.object({ city: v.string() }), copies: v.number() });
  const letters = createQueue(scene.engine, 'letters', { kinds: { send: { payload } } });
  await letters.register();
  const url = await scene.open({ queues: [letters] });
  const { page, context } = await scene.visit(new URL('queues/letters', url).href);
  await page.getByRole('button', { name: 'Add a job' }).click();
  const dialog = page.getByRole('dialog');
  const field = dialog.locator('label', { hasText: 'Payload' });
  const add = (): Promise<void> => dialog.getByRole('button', { name: 'Add', exact: true }).click();
  await field.getByRole('textbox').fill('{"to": {"city": 7}, "copies": 1}');
  await add();
  await field
    .getByRole('alert')
    .getByText(/payload\.to\.city/)
    .waitFor();
  expect(await field.getByRole('textbox').getAttribute('aria-invalid')).toBe('true');
  await field.getByRole('textbox').fill('{"to": {"city": "Lisbon"}, "copies": 1}');
  await add();
  const said = await page.getByText(/^job \d+ is added$/).textContent();
  await letters.cancel(/\d+/.exec(said ?? '')?.[0] ?? '');
  await context.close();
});

test('what is known already can be put aside, in this browser, and brought back', async () => {
  const { page, context } = await on('');
  const item = page.locator('.attention li', { hasText: 'it has no running worker' });
  await item.waitFor();
  await item.locator('summary').press('Enter');
  await item.getByRole('button', { name: 'For 8 hours' }).press('Enter');
  await item.waitFor({ state: 'detached' });
  await page.reload();
  await page.getByRole('button', { name: '1 snoozed: show' }).click();
  await item.waitFor();
  await context.close();
});

test('charts show when workers started, and hours of the week, both as words, too', async () => {
  const { page, context } = await on('queues/mail');
  const chart = page.getByRole('figure', { name: 'Jobs a minute' });
  await chart.getByText('As a table').click();
  await chart.getByText(/worker \S+:\d+ started/).waitFor();
  const heat = page.getByRole('region', { name: 'Run times by hour, p95' });
  await heat.getByText('As a table').click();
  const cells = await heat.getByRole('table').locator('tbody tr').first().locator('td').allTextContents();
  expect(cells[1]).toMatch(/^\d\d:00$/);
  expect(cells[2]).toMatch(/ms|s$/);
  expect(await heat.locator('.heat b[class]').count()).toBeGreaterThan(0);
  await context.close();
});

test('a job shows the locks that its handler holds, and a lock leads to the job that has it', async () => {
  const { page, context } = await on(`jobs/${scene.ids.running}`);
  const locks = page.getByRole('region', { name: 'Locks', exact: true });
  const lock = locks.getByRole('link', { name: 'export:region-0' });
  await lock.waitFor();
  expect(await locks.getByRole('row').count()).toBe(2);
  await lock.click();
  await page.getByRole('heading', { name: 'export:region-0' }).waitFor();
  await page.locator('.head .badge', { hasText: 'held' }).waitFor();
  const job = `job ${scene.ids.running}`;
  await page.getByRole('table', { name: 'Holders' }).getByRole('link', { name: job }).waitFor();
  await page.goto(new URL('locks?name=region-0', base).href);
  await page.getByRole('table', { name: 'Locks', exact: true }).getByRole('link', { name: job }).click();
  await page.getByRole('heading', { name: `Job ${scene.ids.running}` }).waitFor();
  await context.close();
});

test('a queue that is not there is said to be so once', async () => {
  const { page, context } = await on('queues/mial');
  await page.getByText('There is no such queue').waitFor();
  expect(await page.getByRole('alert').count()).toBe(0);
  await context.close();
});

describe('files', () => {
  const path = 'files/one?id=prices/2026.csv';

  test('a version is downloaded to the letter, and an old one becomes the next', async () => {
    const { page, context, complaints } = await on(path);
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Download version 1' }).click(),
    ]);
    expect(await readFile(await download.path(), 'utf8')).toBe('name;price\napple;1.20\n');
    await page.getByRole('button', { name: 'Restore version 1' }).click();
    await page.getByRole('button', { name: 'Restore it' }).click();
    await page.getByText('version 1 is version 4 now').waitFor();
    await page.locator('.head .badge', { hasText: 'version 4' }).waitFor();
    expect(complaints).toEqual([]);
    await context.close();
  });

  test('the store is compared, and swept only once that was typed', async () => {
    const { page, context } = await on('files');
    await page.getByRole('button', { name: /^Compare/ }).click();
    await page.getByText(/^all there, of \d+$/).waitFor();
    await page.getByRole('button', { name: /^Sweep/ }).click();
    const sure = page.getByRole('dialog').getByRole('button', { name: 'Sweep', exact: true });
    expect(await sure.isDisabled()).toBe(true);
    await page.getByLabel(/Type sweep/).fill('sweep');
    await sure.click();
    await page.getByText(/^\d+ objects are deleted$/).waitFor();
    await context.close();
  });

  test('what belongs to nothing is taken to quarantine, and a collector that stopped itself goes on, both only when typed', async () => {
    const stray = join(scene.folder, 'objects', '00');
    await mkdir(stray, { recursive: true });
    await writeFile(join(stray, randomUUID().replace(/^../, '00')), 'x');
    const halt = "update pawl.file_store set halted_at = now(), halted_because = 'the store is ahead of the database'";
    await scene.engine.query(statement('test.halt', halt));
    const { page, context } = await on('files');
    const dialog = page.getByRole('dialog');
    const take = async (): Promise<void> => {
      await page.getByRole('button', { name: /^Quarantine/ }).click();
      const sure = dialog.getByRole('button', { name: 'Take them away' });
      expect(await sure.isDisabled()).toBe(true);
      await page.getByLabel(/Type quarantine/).fill('quarantine');
      await sure.click();
    };
    await page.getByRole('button', { name: /^Compare/ }).click();
    await page.getByText('1 object belongs to nothing').waitFor();
    // Until a person has said that this database is right.
    await take();
    await page.getByText(/^the collector has stopped itself/).waitFor();
    await page.getByRole('button', { name: 'Let it go on…' }).click();
    const goOn = dialog.getByRole('button', { name: 'Let it go on', exact: true });
    expect(await goOn.isDisabled()).toBe(true);
    await page.getByLabel(/Type go on/).fill('go on');
    await goOn.click();
    await page.getByText(/^the collector goes on; it had stopped because/).waitFor();
    await page.getByRole('button', { name: 'Let it go on…' }).waitFor({ state: 'detached' });
    await take();
    await page.getByText('1 object is in quarantine', { exact: true }).first().waitFor();
    expect(await page.getByRole('button', { name: /^Quarantine/ }).count()).toBe(0);
    await context.close();
  });

  test('a document is removed only by a user who types its id, and not by a viewer', async () => {
    const closed = await scene.open({ readOnly: true });
    const looking = await scene.visit(new URL(path, closed).href);
    await looking.page.getByRole('link', { name: 'Download version 1' }).waitFor();
    expect(await looking.page.getByRole('button', { name: /^Restore|^Remove/ }).count()).toBe(0);
    const status = await looking.page.evaluate(
      async () => (await fetch('api/v1/files/sweep', { method: 'POST', body: '{}' })).status,
    );
    expect(status).toBeGreaterThanOrEqual(400);
    await looking.context.close();
    const { page, context } = await on('files/one?id=contracts/rent.pdf');
    await page.getByRole('button', { name: 'Remove', exact: true }).click();
    await page.getByLabel(/Type/).fill('contracts/rent.pdf');
    await page.getByRole('button', { name: 'Remove it' }).click();
    await page.getByText('contracts/rent.pdf is removed').waitFor();
    await context.close();
  });
});

describe('capture', () => {
  test('triggers are verified; a capture is replayed and taken out only once its name was typed', async () => {
    const { page, context } = await on('captures');
    const card = page.getByRole('region', { name: 'Coverage of customer' });
    await card.getByText('no change can go unnoticed').waitFor();
    await open(page, 'Actions');
    await page.getByRole('button', { name: 'Verify now' }).click();
    await page.getByText('the triggers stand as they were installed').waitFor();
    // It has no consumers: there is nothing to replay.
    expect(await page.getByRole('button', { name: /^Replay/ }).count()).toBe(0);
    await open(page, 'Actions');
    await page.getByRole('button', { name: 'Detach' }).click();
    const sure = page.getByRole('button', { name: 'Detach it' });
    expect(await sure.isDisabled()).toBe(true);
    await page.getByLabel(/Type customer/).fill('customer');
    await sure.click();
    await page.getByText('customer is detached').waitFor();
    await page.getByRole('region', { name: 'Coverage of product' }).waitFor();
    expect(await page.getByText('customer', { exact: true }).count()).toBe(0);
    await context.close();
  });

  test('a table that follows is compared, mended and replayed; a capture that was taken out is installed again', async () => {
    const { page, context } = await on('captures?entity=product');
    const act = async (name: string): Promise<void> => {
      await page.getByRole('region', { name: 'Coverage of product' }).waitFor();
      await open(page, 'Actions');
      await page.getByRole('button', { name }).click();
    };
    const sure = async (verb: string): Promise<void> => {
      await page.getByLabel(/Type product/).fill('product');
      await page.getByRole('dialog').getByRole('button', { name: verb, exact: true }).click();
    };
    const wrong = "update product_search set title = 'wrong' where id = 7";
    await scene.engine.query(statement('test.drift', wrong));
    await act('Compare, and change nothing');
    await page.getByText('product_search: 40 compared, 1 is wrong: 7').waitFor();
    await act('Compare, and mend…');
    await sure('Compare and mend');
    const right = "select from product_search where id = 7 and title = 'Product 7'";
    await until(
      'its worker has mended it',
      async () => (await scene.engine.query(statement('test.right', right))).length > 0,
    );
    await act('Replay everything…');
    await sure('Replay');
    await page.getByText('begun: product_search').waitFor();
    await act('Install as declared…');
    await sure('Install');
    await page.getByText('all was as declared: nothing was done').waitFor();
    await act('Detach…');
    await sure('Detach it');
    await page.getByText('it is not installed: its changes go unnoticed').waitFor();
    await page.getByRole('button', { name: 'Install product' }).click();
    await sure('Install');
    await page.getByText(/\d+ things made or mended/).waitFor();
    await page.getByRole('region', { name: 'Coverage of product' }).waitFor();
    await context.close();
  });
});
