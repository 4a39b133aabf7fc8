import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { type Actors, actor, createActors, state } from '../../src/actor/index.ts';
import { type Capture, createCapture, sql } from '../../src/capture/index.ts';
import { type PostgresEngine, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createFiles, disk, type Files } from '../../src/files/index.ts';
import { createHttp, type HttpOptions, serve } from '../../src/http/index.ts';
import { createLocks } from '../../src/lock/index.ts';
import { createQueue } from '../../src/queue/index.ts';
import { freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { OPEN_DOOR } from '../support/servers/open-door.ts';

/** A shop with something of everything going on, and a browser that looks at it. */
export interface Scene {
  readonly engine: PostgresEngine;
  readonly ids: {
    /** Runs, and holds a lock. */
    readonly running: string;
    readonly failed: string;
    readonly complete: string;
    readonly waiting: string;
    readonly server: string;
  };
  readonly files: Files;
  /** Where the bytes of the files are. */
  readonly folder: string;
  /** A dashboard with these options. @returns its address */
  readonly open: (options?: HttpOptions) => Promise<string>;
  readonly visit: (url: string, options?: Parameters<Browser['newContext']>[0]) => Promise<Visit>;
  readonly stop: () => Promise<void>;
}

/** A browser of one's own, and what it complained of. */
export interface Visit {
  readonly page: Page;
  readonly context: BrowserContext;
  /** Errors of scripts, and violations of the policy. */
  readonly complaints: string[];
}

export async function makeScene(): Promise<Scene> {
  const { url } = await freshDatabase();
  const engine = postgres(url, { max: 30 });
  const closers: (() => Promise<unknown>)[] = [];
  const { actors, capture, ...ids } = await furnish(engine, closers);
  const { files, folder } = await keepFiles(engine, closers);
  const browser = await launch();
  return {
    engine,
    ids,
    files,
    folder,
    open: async (options = {}) => {
      const served = await serve(
        createHttp(engine, {
          auth: OPEN_DOOR,
          live: '500ms',
          rate: { burst: 10_000, perSecond: 1000 },
          files,
          actors,
          captures: [capture],
          ...options,
        }),
      );
      closers.push(() => served.stop());
      return served.url;
    },
    visit: async (at, options = {}) => {
      const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, ...options });
      const visit = watch(context, await context.newPage());
      await visit.page.goto(at);
      return visit;
    },
    stop: async () => {
      await browser.close();
      for (const close of closers.reverse()) await close();
      await engine.stop();
    },
  };
}

/** Hears what a page complains of. */
export function watch(context: BrowserContext, page: Page): Visit {
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text());
  });
  return { page, context, complaints };
}

export function launch(): Promise<Browser> {
  const places = [
    process.env['CHROMIUM'] ?? '',
    '/usr/bin/chromium',
    '/usr/bin/chromium-browser',
    '/usr/bin/google-chrome',
  ];
  const executablePath = places.find((path) => existsSync(path));
  if (executablePath === undefined) throw new Error('no chromium is installed: npm run test:browser does it');
  return chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
}

const HOUR_MS = 3_600_000;

/** The parts of the program that dashboards get, next to the ids. */
type Furniture = Scene['ids'] & { readonly actors: Actors; readonly capture: Capture };

async function furnish(engine: PostgresEngine, closers: (() => Promise<unknown>)[]): Promise<Furniture> {
  const mail = createQueue(engine, 'mail', {
    kinds: { welcome: {}, receipt: { attempts: 3 } },
    retry: { backoff: { min: '100ms', max: '200ms' } },
  });
  const reports = createQueue(engine, 'reports', { kinds: { daily: {}, export: { coalesce: 'all' } } });
  const thumbnails = createQueue(engine, 'thumbnails', { kinds: { make: {} } });
  await thumbnails.register();
  await reports.schedule('every-night', {
    cron: '30 3 * * *',
    timezone: 'Europe/Berlin',
    kind: 'daily',
    payload: { of: 'all' },
  });
  await mail.schedule('digest', { cron: '*/15 * * * *', kind: 'welcome', payload: { digest: true } });
  const customer = (n: number): string => `customer-${1000 + (n % 37)}`;
  await mail.enqueueMany(
    Array.from({ length: 400 }, (_, n) => ({
      kind: 'welcome' as const,
      payload: { to: `${customer(n)}@example.org`, order: 81_000 + n },
      key: customer(n),
    })),
  );
  const { id: complete } = await mail.enqueue(
    'welcome',
    { to: 'ada@example.org', order: 9, lines: [{ sku: 'A-17', amount: 2 }] },
    { key: 'ada' },
  );
  const { id: failed } = await mail.enqueue(
    'receipt',
    { to: 'nobody@example.org', invoice: 'R-2041' },
    { key: 'nobody' },
  );
  await mail.enqueueMany(
    Array.from({ length: 12 }, (_, n) => ({
      kind: 'receipt' as const,
      payload: { to: 'nobody@example.org', invoice: `R-${n}` },
    })),
  );
  const worker = mail.work(
    {
      welcome: async () => ({ sent: true, by: 'smtp-2' }),
      receipt: async ({ payload }) => {
        throw failing(`550 5.1.1 mailbox unavailable: ${JSON.stringify(payload)}`);
      },
    },
    { concurrency: 20 },
  );
  closers.push(() => worker.stop());
  await mail.drain({ delayed: true });
  const exports = createLocks(engine, { namespace: 'shop' });
  closers.push(() => exports.stop());
  const slow = reports.work(
    {
      daily: ({ key, signal }) => exports.request(`export:${key}`, () => held(signal)),
      export: ({ signal }) => held(signal),
    },
    { concurrency: 4 },
  );
  closers.push(() => slow.stop({ timeout: 0 }));
  const { id: running } = await reports.enqueue('daily', { region: 0 }, { key: 'region-0' });
  for (let n = 1; n < 9; n += 1) await reports.enqueue('daily', { region: n }, { key: `region-${n}` });
  await until('it runs', async () => (await reports.get(running)).status === 'in-progress');
  await reports.enqueue('daily', { region: 'next' }, { runAt: new Date(Date.now() + HOUR_MS) });
  const [waiting = ''] = await thumbnails.enqueueMany(
    Array.from({ length: 140 }, (_, n) => ({ kind: 'make' as const, payload: { image: `img-${n}.jpg` } })),
  );
  await lineUp(engine, closers);
  await captureCustomers(engine);
  const capture = await followProducts(engine, closers);
  return { running, complete, failed, waiting, capture, ...(await build(engine, closers)) };
}

/** With the trace of a shop's own code: pictures are to be the same wherever they are taken. */
function failing(message: string): Error {
  const error = new Error(message);
  error.stack = `Error: ${message}\n    at deliver (/srv/shop/mail/smtp.ts:88:11)\n    at receipt (/srv/shop/mail/handlers.ts:23:5)`;
  return error;
}

/** Until the end of the tests, or until it is told to stop. */
function held(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** Locks that are held, waited for, and held while others are waited for. */
async function lineUp(engine: PostgresEngine, closers: (() => Promise<unknown>)[]): Promise<void> {
  const locks = createLocks(engine, { namespace: 'shop' });
  closers.push(() => locks.stop());
  await locks.acquire('invoice:2041', { lease: '10m' });
  await locks.acquire('stock:A-17', { lease: '10m', mode: 'shared' });
  await locks.acquire('nightly-import', { lease: Infinity });
  for (let n = 0; n < 2; n += 1) void locks.acquire('invoice:2041').catch(() => {});
  void locks.request('ledger', () => locks.acquire('invoice:2041')).catch(() => {});
  await until('the ledger is held', async () => (await locks.query()).held.some(({ name }) => name === 'ledger'));
  void locks.acquire('ledger').catch(() => {});
  for (let n = 0; n < 8; n += 1) await locks.request(`customer:${n % 3}`, () => {});
  await until('all wait', async () => (await locks.query()).waiting.length === 4);
}

/** Documents with versions, one of them large enough to be worth a unit. */
async function keepFiles(
  engine: PostgresEngine,
  closers: (() => Promise<unknown>)[],
): Promise<{ files: Files; folder: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'pawl-browser-files-'));
  closers.push(() => rm(folder, { recursive: true, force: true }));
  const files = createFiles(engine, { content: disk(folder) });
  for (const prices of ['apple;1.20', 'apple;1.25', 'apple;1.25\npear;2.10']) {
    const options = { contentType: 'text/csv', author: 'ada', meta: { season: 'autumn' } };
    await files.write('prices/2026.csv', `name;price\n${prices}\n`, options);
  }
  await files.write('logos/shop.svg', `<svg>${' '.repeat(40_000)}</svg>`, { contentType: 'image/svg+xml' });
  await files.write('contracts/rent.pdf', '%PDF-1.7', { contentType: 'application/pdf', author: 'grace' });
  return { files, folder };
}

/** A table of the shop's own, whose changes are kept. */
async function captureCustomers(engine: PostgresEngine): Promise<void> {
  const run = (name: string, text: string): Promise<unknown> => engine.query(statement(`scene.${name}`, text));
  await run('customer', 'create table customer (id bigint primary key, name text, city text)');
  const history = { customer: { rows: 'both', columns: ['id', 'name', 'city'] } } as const;
  await createCapture(engine, { entity: 'customer', root: 'customer', history }).apply();
  await run('fill', "insert into customer select n, 'Customer ' || n, 'Berlin' from generate_series(1, 5) n");
  await run('move', "update customer set city = 'Lisbon' where id < 4");
  await run('leave', 'delete from customer where id = 5');
}

/** A table that follows another one, kept by a worker. */
async function followProducts(engine: PostgresEngine, closers: (() => Promise<unknown>)[]): Promise<Capture> {
  const run = (name: string, text: string): Promise<unknown> => engine.query(statement(`scene.${name}`, text));
  await run('product', 'create table product (id bigint primary key, title text)');
  await run('products', "insert into product select n, 'Product ' || n from generate_series(1, 40) n");
  const capture = createCapture(engine, { entity: 'product', root: 'product' });
  const found = capture.project({
    into: 'product_search',
    columns: { title: 'text' },
    build: sql`select p.id, p.title from product p where p.id = any ($1::bigint[])`,
  });
  await capture.apply();
  const worker = found.run();
  closers.push(() => worker.stop());
  await found.backfill();
  return capture;
}

async function build(
  engine: PostgresEngine,
  closers: (() => Promise<unknown>)[],
): Promise<{ server: string; actors: Actors }> {
  const Server = actor('server', {
    initial: 'creating',
    fieldHistory: '7d',
    semaphores: ['configure', 'destroy'],
    always: { destroy: 'destroying' },
    states: {
      creating: state({ to: ['booting'], run: async (a) => a.to('booting', { instance: `i-0a7f${a.id}` }) }),
      booting: state({
        to: ['running', 'failed'],
        deadline: '10m',
        run: async (a) => a.to('running', { address: `10.0.0.${a.id}` }),
      }),
      running: state({
        to: ['configuring', 'stopping'],
        every: '30s',
        run: async (a) => (a.pos('configure') ? a.to('configuring') : a.stay()),
      }),
      configuring: state({
        to: ['running'],
        run: async (a) => {
          a.decr('configure');
          return a.to('running', { configured: Number(a.fields['configured'] ?? 0) + 1 });
        },
      }),
      stopping: state({ to: ['running'], run: async (a) => a.to('running') }),
      failed: state({ to: ['booting'], run: async (a) => a.hibernate() }),
      destroying: state({ to: [], run: async (a) => a.done() }),
    },
  });
  const actors = createActors(engine, [Server]);
  const dispatcher = actors.run({ concurrency: 10 });
  closers.push(() => dispatcher.stop());
  const made = await Promise.all(
    Array.from({ length: 14 }, (_, n) =>
      actors.create(Server, { size: n % 3 === 0 ? 'large' : 'small' }, { key: `web-${n}` }),
    ),
  );
  const [first = { id: '' }] = made;
  await actors.waitFor(first.id, { state: 'running' });
  await actors.incr(first.id, 'configure');
  await actors.page({
    tag: 'disk:web-3',
    summary: 'The disk of web-3 is 91 % full',
    severity: 'error',
  });
  await actors.page({ tag: 'certificate', summary: 'The certificate ends in 9 days', severity: 'warning' });
  return { server: first.id, actors };
}
