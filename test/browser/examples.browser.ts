import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { expect, onTestFinished, test } from 'vitest';
import { doorOf } from '../cli/door.ts';
import { type Running, startPawl } from '../cli/pawl.ts';
import { SqlSession } from '../queue/sql-session.ts';
import { freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { LONG } from '../support/long.ts';
import { launch } from './scene.ts';

/** Six examples on two cores: what they do is what is waited for. */
const PATIENCE_MS = 60_000;

const PLACES: readonly (readonly [path: string, shows: readonly string[]])[] = [
  ['', ['Try what happens', 'Kill a worker', 'Pause a consumer', 'Hold this lock']],
  ['queues', ['spreadsheets', 'nightly']],
  ['queues/spreadsheets', ['create, update', 'Why is this queue']],
  ['jobs?q=kind:update', ['complete']],
  ['schedules', ['count-invoices', 'Europe/Berlin']],
  ['workers', ['spreadsheets', 'formation, image, role, server, timeline']],
  ['locks', ['daily-report']],
  ['actors?type=server', ['waitRunning', 'running']],
  ['captures', ['shop.order_search', 'no change can go unnoticed', 'shop.orders', 'Install as declared…']],
  ['files?namespace=documents', ['notes', 'plans/2027', 'Compare', 'Sweep']],
  ['files/one?namespace=documents&id=notes', ['Download', 'client-']],
  ['history', ['moved', 'complete']],
  ['pages?status=all', ['does not answer', 'Diagnostics']],
  ['admin', ['Migrations', 'up to date', 'Tables']],
];

test('pawl dev shows on every page what its examples do, and its buttons make accidents', async () => {
  const dev = await startDev();
  const { base, url } = await doorOf(dev);
  // Looking at what stands still takes a quarter of the time.
  if (!LONG) signalExamples(dev.pid, 'SIGSTOP');
  const browser = await launch();
  onTestFinished(() => browser.close());
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const broken: string[] = [];
  page.on('pageerror', (error) => broken.push(String(error)));
  await page.goto(url);
  expect(page.url()).toBe(base);
  for (const [path, words] of PLACES) await shows(page, new URL(path, base), words);

  const press = async (name: string, answer: RegExp): Promise<void> => {
    await page.goto(base);
    await page.getByRole('button', { name }).click();
    await page.getByText(answer).first().waitFor();
  };
  await press('Hold this lock', /the lock "printer" is held, and other clients wait for it/);
  await shows(page, new URL('locks', base), ['printer', 'has scanner, waits']);
  await press('Release the lock', /the lock is released/);
  await press('Kill a worker', /back end \d+ is killed; another one starts/);
  await press('Pause a consumer', /queue "spreadsheets" is paused/);
  await shows(page, new URL('queues/spreadsheets', base), ['it has been paused since']);
  await press('Let the consumer go on', /queue "spreadsheets" goes on/);
  expect(broken).toEqual([]);
  if (!LONG) return;
  // Whatever was done to it: nothing is lost.
  dev.signal('SIGINT');
  const { code, stderr } = await dev.ended;
  expect([code, stderr.split('\n').slice(-8)]).toMatchObject([0, {}]);
}, 240_000);

/** `pawl dev` on a database of the tests' server, until each example has something to show. */
async function startDev(): Promise<Running> {
  const { url } = await freshDatabase();
  const folder = await mkdtemp(join(tmpdir(), 'pawl-browser-dev-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const dev = startPawl(['--url', url, 'dev', '--seed', '7'], { env: { TMPDIR: folder } });
  // With the whole company: it would be left standing.
  onTestFinished(() => signalExamples(dev.pid, 'SIGKILL'));
  const begun = (): boolean => /cloud: the instance of server/.test(dev.stderr());
  await until('the examples have begun', begun, 2 * PATIENCE_MS).catch((cause: unknown) => {
    throw new Error(`it did not come; it printed ${dev.stderr()}`, { cause });
  });
  // The examples are left standing from here on, and a client that is slow has saved only one document by then.
  const session = await SqlSession.open(url);
  onTestFinished(() => session.end());
  const saved =
    "select count(*) = 2 from pawl.file_document where object is not null and id in ('notes', 'plans/2027')";
  await until('both documents are saved', () => session.one<boolean>(saved), 2 * PATIENCE_MS);
  return dev;
}

/** To all processes that it has started, and that are there. */
function signalExamples(dev: number, signal: NodeJS.Signals): void {
  const list = `/proc/${dev}/task/${dev}/children`;
  const pids = existsSync(list) ? readFileSync(list, 'utf8').trim().split(' ') : [];
  for (const pid of pids.filter((one) => one !== '').map(Number)) {
    try {
      process.kill(pid, signal);
    } catch {
      // It was killed in between, which is what examples are for.
    }
  }
}

async function shows(page: Page, url: URL, words: readonly string[]): Promise<void> {
  await page.goto(url.href);
  const wanted = (given: readonly string[]): string[] =>
    given.filter((word) => document.body.textContent?.includes(word) !== true);
  await page
    .waitForFunction((given) => given.every((word) => document.body.textContent?.includes(word)), words as string[], {
      timeout: PATIENCE_MS,
    })
    .catch(async () => {
      throw new Error(`${url.pathname}${url.search} does not show ${(await page.evaluate(wanted, words)).join(', ')}`);
    });
}
