import pg from 'pg';
import type { Bench, Context } from './harness/context.ts';
import { atMost, figure, percentile } from './harness/figures.ts';
import { vacuum } from './harness/server.ts';
import { addQueues, type Fresh, forgetWords, measureCold, measureStrangers } from './http-crowd.ts';
import { measureRedaction } from './http-redaction.ts';

const FULL = { jobs: 1_000_000, requests: 40, watchMs: 30_000 };
const QUICK = { jobs: 200_000, requests: 20, watchMs: 15_000 };
const WATCHERS = 100;
const TOKEN = 'a-token-for-the-bench';
const HEADERS = { authorization: `Bearer ${TOKEN}` } as const;
/** The requests of the dashboard's charts. */
const CHARTS = ['charts?range=1h', 'charts?range=24h', 'charts?range=7d', 'charts?range=24h&queue=mail', 'errors'];
/** The requests of a dashboard while its first page is open, in addition to the stream, and how often (ms) it sends them: see dashboard/src. */
const REFRESHED = [
  ['queues', 2000],
  ['attention', 4000],
  ['series', 10_000],
] as const;
/** The HTTP API over many jobs: the time of lists and of whole pages, and the statements that watchers cause. */
export const http: Bench = async (context) => {
  if (context.peersOnly) return { figures: {}, bars: {} };
  const size = context.quick ? QUICK : FULL;
  const url = await context.server.createDatabase();
  const { postgres, createQueue, createHttp, serve } = await load();
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  const statements = countStatements(pool);
  const engine = postgres(pool, { max: 10 });
  await engine.migrate();
  await fill(context, createQueue(engine, 'mail', { kinds: { send: {}, fail: { attempts: 1 } } }), size.jobs);
  await vacuum(url);
  await context.server.checkpoint();
  const common = {
    auth: { tokens: [{ name: 'bench', token: TOKEN, role: 'admin' }] },
    streams: { perCaller: WATCHERS },
  };
  const open = (): Handler => createHttp(engine, { ...common, rate: { burst: 1e6, perSecond: 1e6 } });
  const lists = await measureLists(context, open(), size.requests);
  const pages = await measurePages(context, open(), size.requests);
  const cost = await measureWatchers(context, open(), statements, size.watchMs);
  const fresh = (): Fresh => {
    const handler = open();
    return { ask: (path) => ask(handler, path, 0), stop: () => handler.stop() };
  };
  const charts = await measureCold(context, fresh, CHARTS, size.requests / 2);
  await forgetWords(pool);
  const newest = await measureCold(context, fresh, ['jobs'], size.requests);
  await addQueues(pool);
  const queues = await measureCold(context, fresh, ['queues', 'attention', 'live'], size.requests / 2);
  const door = await serve(createHttp(engine, common));
  const [without, beside] = await measureStrangers(context, door.url, HEADERS);
  await door.stop();
  const redaction = await measureRedaction(context, createQueue(engine, 'large', { kinds: { send: {} } }), (redact) => {
    const handler = createHttp(engine, { ...common, redact });
    return { ask: (path) => ask(handler, path, 0), stop: () => handler.stop() };
  });
  await engine.stop();
  await pool.end();
  await context.server.dropDatabase(url);
  const slowest = Math.max(...Object.values(lists).map((ms) => percentile(ms, 95)));
  return {
    figures: {
      ...Object.fromEntries(
        Object.entries(lists).map(([path, ms]) => [`p95 ${path}`, figure('ms', [percentile(ms, 95)])]),
      ),
      ...Object.fromEntries(
        Object.entries(pages).map(([page, ms]) => [`most page ${page}`, figure('ms', [Math.max(...ms)])]),
      ),
      ...Object.fromEntries(
        Object.entries({ ...charts, ...queues, ...newest }).map(([path, ms]) => [
          `p95 ${path}, cold`,
          figure('ms', [percentile(ms, 95)]),
        ]),
      ),
      'strangers/without': figure('ms', [without]),
      'strangers/beside': figure('ms', [beside]),
      watchers: figure('statements/s', [cost]),
      ...Object.fromEntries(Object.entries(redaction).map(([how, ms]) => [`1 MB, ${how}`, figure('ms', ms)])),
    },
    bars: {
      pages: atMost(300, Math.max(...Object.values(pages).flat())),
      lists: atMost(100, slowest),
      watchers: atMost(5, cost),
      charts: atMost(100, Math.max(...Object.values(charts).map((ms) => percentile(ms, 95)))),
      queues_1000: atMost(200, percentile(queues['queues'] ?? [], 95)),
      newest: atMost(20, percentile(newest['jobs'] ?? [], 95)),
      strangers: atMost(2, beside / without),
    },
  };
};

type Handler = ((request: Request, peer: { remoteAddress: string }) => Promise<Response>) & { stop(): Promise<void> };

interface Queue {
  enqueue(kind: string, payload: unknown): Promise<{ readonly id: string }>;
  enqueueMany(jobs: readonly object[]): Promise<unknown>;
  work(handlers: object, options: object): { stop(): Promise<void> };
  drain(options: object): Promise<void>;
}

interface Engine {
  migrate(): Promise<unknown>;
  stop(): Promise<void>;
}

interface Library {
  readonly postgres: (pool: pg.Pool, options: object) => Engine;
  readonly createQueue: (engine: Engine, name: string, options: object) => Queue;
  readonly createHttp: (engine: Engine, options: object) => Handler;
  readonly serve: (handler: Handler) => Promise<{ readonly url: string; stop(): Promise<void> }>;
}

/** Loads the library from the build, as a user of the package gets it. */
async function load(): Promise<Library> {
  const built = (part: string): Promise<object> => import(new URL(`../dist/${part}/index.js`, import.meta.url).href);
  return Object.assign({}, await built('engine/postgres'), await built('queue'), await built('http')) as Library;
}

/** Of all jobs 49 % are complete, 1 % in error, 45 % ready and 5 % delayed. Some have keys, and payloads have words to find. */
async function fill({ say }: Context, queue: Queue, jobs: number): Promise<void> {
  const add = async (from: number, to: number, make: (n: number) => object): Promise<void> => {
    for (let n = from; n < to; n += 5000) {
      await queue.enqueueMany(Array.from({ length: Math.min(5000, to - n) }, (_, index) => make(n + index)));
    }
  };
  const payload = (n: number): object => ({
    to: `customer-${n % 50_000}@example.org`,
    order: n,
    note: n % 1000 === 0 ? 'rareword' : 'plain',
  });
  say(`loading ${jobs} jobs`);
  await add(0, jobs * 0.49, (n) => ({ kind: 'send', payload: payload(n) }));
  await add(jobs * 0.49, jobs * 0.5, (n) => ({ kind: 'fail', payload: payload(n) }));
  const handlers = {
    send: async () => {},
    fail: async () => {
      throw new Error('mailbox unavailable');
    },
  };
  const worker = queue.work(handlers, { concurrency: 500 });
  await queue.drain({ timeout: '20m' });
  await worker.stop();
  await add(jobs * 0.5, jobs * 0.9, (n) => ({ kind: 'send', payload: payload(n) }));
  await add(jobs * 0.9, jobs * 0.95, (n) => ({ kind: 'send', payload: payload(n), key: `key-${n % 5000}` }));
  const later = new Date(Date.now() + 86_400_000);
  await add(jobs * 0.95, jobs, (n) => ({ kind: 'send', payload: payload(n), runAt: later }));
}

const LISTS = [
  'queues',
  'queues/mail',
  'queues/mail/diagnosis',
  'jobs',
  'jobs?q=status:error',
  'jobs?q=status:new',
  'jobs?q=status:complete',
  'jobs?q=key:key-17',
  'jobs?q=rareword',
  'jobs?q=plain',
  'jobs?q=unavailable',
  'jobs/77',
  'series?points=60',
  'history',
  'locks',
  'locks/graph',
  'actors',
  'pages',
  'schedules',
  'workers',
  'attention',
  'audit',
  'admin',
];

/** The requests that each page of the dashboard sends when it opens: see dashboard/src. Requests that all pages send are left out. */
const PAGES: Readonly<Record<string, readonly string[]>> = {
  overview: ['live', 'attention', 'queues', 'series?points=60', 'workers'],
  queues: ['queues', 'series?points=60'],
  queue: [
    'queues/mail',
    'queues/mail/diagnosis',
    'queues/mail/series?points=60',
    `queues/mail/series?points=84&since=${ago(3.5)}`,
    `queues/mail/series?points=84&since=${ago(7)}&until=${ago(3.5)}`,
    'workers',
  ],
  jobs: ['jobs?limit=50', 'queues'],
  job: ['jobs/77', 'jobs/77/siblings', 'jobs/77/payload'],
  schedules: ['schedules'],
  workers: ['workers'],
  locks: ['locks/graph', 'locks/hottest', 'locks?contended=false'],
  lock: ['locks/one?name=a', 'locks/one/history?name=a'],
  actors: ['actor-types', 'actors?final=false'],
  captures: ['captures'],
  files: ['files/stores', 'files', 'files/reloads?namespace='],
  history: ['history'],
  pages: ['pages'],
  bulk: ['bulk'],
  admin: ['admin', 'audit'],
};

function ago(days: number): string {
  return new Date(Date.now() - days * 86_400_000).toISOString();
}

/** Milliseconds until a page has all of its answers. */
async function measurePages({ say }: Context, handler: Handler, times: number): Promise<Record<string, number[]>> {
  const all: Record<string, number[]> = {};
  for (const [page, paths] of Object.entries(PAGES)) {
    const taken: number[] = [];
    for (let n = 0; n < times; n += 1) {
      const begin = performance.now();
      const answers = await Promise.all(paths.map((path) => ask(handler, path, n)));
      await Promise.all(answers.map((answer) => answer.text()));
      taken.push(performance.now() - begin);
      const bad = answers.findIndex(({ ok }) => !ok);
      if (bad >= 0) throw new Error(`page ${page}: ${paths[bad]} answered ${answers[bad]?.status}`);
    }
    all[page] = taken;
    say(`page ${page}: p50 ${percentile(taken, 50).toFixed(1)} ms, most ${Math.max(...taken).toFixed(1)} ms`);
  }
  await handler.stop();
  return all;
}

async function measureLists({ say }: Context, handler: Handler, requests: number): Promise<Record<string, number[]>> {
  const all: Record<string, number[]> = {};
  for (const path of LISTS) {
    const taken: number[] = [];
    let after = '';
    for (let n = 0; n < requests; n += 1) {
      // Each request has its own host name, so that no two share an answer. If a list has pages, the requests go on to the next page.
      const begin = performance.now();
      const response = await ask(handler, `${path}${after}`, n);
      const body: unknown = await response.json();
      taken.push(performance.now() - begin);
      if (!response.ok) throw new Error(`${path}: ${JSON.stringify(body)}`);
      const next: unknown = Reflect.get(Object(body), 'after');
      after = typeof next === 'string' ? `${path.includes('?') ? '&' : '?'}after=${next}` : '';
    }
    all[path] = taken;
    say(`${path}: p50 ${percentile(taken, 50).toFixed(1)} ms, p95 ${percentile(taken, 95).toFixed(1)} ms`);
  }
  await handler.stop();
  return all;
}

function ask(handler: Handler, path: string, n: number): Promise<Response> {
  const request = new Request(`http://${n}.localhost/api/v1/${path}`, { headers: HEADERS });
  return handler(request, { remoteAddress: '127.0.0.1' });
}

/** Statements a second for open dashboards: for their streams, and for the requests that a page sends after a snapshot. */
async function measureWatchers(
  { say }: Context,
  handler: Handler,
  statements: () => number,
  forMs: number,
): Promise<number> {
  const ending = new AbortController();
  let told = 0;
  const watch = async (): Promise<void> => {
    const request = new Request('http://localhost/api/v1/events', { headers: HEADERS, signal: ending.signal });
    const response = await handler(request, { remoteAddress: '127.0.0.1' });
    const asked = new Map<string, number>();
    for await (const chunk of response.body ?? []) {
      if (!new TextDecoder().decode(chunk).includes('event: snapshot')) continue;
      told += 1;
      for (const [path, everyMs] of REFRESHED) {
        if (performance.now() - (asked.get(path) ?? -Infinity) < everyMs) continue;
        asked.set(path, performance.now());
        await (await ask(handler, path, 0)).text();
      }
    }
  };
  const watchers = Array.from({ length: WATCHERS }, () => watch().catch(() => {}));
  const [before, begin] = [statements(), performance.now()];
  await new Promise((resolve) => setTimeout(resolve, forMs));
  const busy = ((statements() - before) * 1000) / (performance.now() - begin);
  ending.abort();
  await handler.stop();
  await Promise.all(watchers);
  say(`${WATCHERS} watchers were told ${told} times; ${busy.toFixed(2)} statements/s`);
  return busy;
}

/** Counts the statements that are sent over this pool, begin and commit included. @returns reads the count */
function countStatements(pool: pg.Pool): () => number {
  let sent = 0;
  pool.on('connect', (client) => {
    const query: (...words: unknown[]) => unknown = client.query.bind(client);
    const counting = (...words: unknown[]): unknown => {
      const [first] = words;
      const text = typeof first === 'string' ? first : String(Reflect.get(Object(first), 'text'));
      sent += text.startsWith('begin') ? text.split(';').length : 1;
      return query(...words);
    };
    Reflect.set(client, 'query', counting);
  });
  return () => sent;
}
