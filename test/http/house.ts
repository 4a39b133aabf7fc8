import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Actors, actor, createActors, state } from '../../src/actor/index.ts';
import { type Capture, createCapture, sql } from '../../src/capture/index.ts';
import { type PostgresEngine, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createFiles, disk, type Files } from '../../src/files/index.ts';
import { createHttp, type HttpHandler, type HttpOptions } from '../../src/http/index.ts';
import { createLocks } from '../../src/lock/index.ts';
import { createQueue } from '../../src/queue/index.ts';
import { freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { OPEN_DOOR } from '../support/servers/open-door.ts';

/** A database with something of everything in it, and ids to ask for. Its maker stops it: `beforeAll` calls the function that it gets. */
export interface House {
  readonly engine: PostgresEngine;
  /** Of its database, for other processes. */
  readonly url: string;
  /** With one document, "doc/1", of two versions; every handler has them. */
  readonly files: Files;
  /** Of the table person, with a projection badge; declared to every handler. */
  readonly capture: Capture;
  /** Makes an actor of the type server, whose program every handler has. @returns its id */
  readonly addServer: () => Promise<string>;
  /** Where the bytes of the files are. */
  readonly objects: string;
  readonly ids: Readonly<Record<'complete' | 'failed' | 'waiting' | 'actor' | 'page', string>>;
  readonly open: (options?: HttpOptions) => Visitor;
  readonly stop: () => Promise<void>;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly body: Record<string, unknown> & {
    readonly items?: Record<string, unknown>[];
    readonly error?: { code: string; message: string; field?: string };
  };
}

export interface RequestOptions {
  readonly method?: string;
  /** An object is sent as JSON, anything else as it is. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** Where the connection comes from; null: it is unknown. */
  readonly from?: string | null;
}

/** A handler, and a way to ask it. */
export interface Visitor {
  readonly handler: HttpHandler;
  readonly ask: (path: string, asked?: RequestOptions) => Promise<Answer>;
}

const BIG = '{"order": 12345678901234567890123, "secret": "s3", "to": "ada"}';

export async function makeHouse(): Promise<House> {
  const { url } = await freshDatabase();
  const engine = postgres(url, { max: 8 });
  const handlers: HttpHandler[] = [];
  const locks = createLocks(engine);
  const objects = await mkdtemp(join(tmpdir(), 'pawl-test-http-'));
  const files = createFiles(engine, { content: disk(objects) });
  const stop = async (): Promise<void> => {
    await Promise.all(handlers.map((handler) => handler.stop()));
    await files.stop();
    await rm(objects, { recursive: true, force: true });
    await locks.stop();
    await engine.stop();
  };
  const { ids, capture, actors, addServer } = await furnish(engine);
  for (const text of ['the first', 'the second'])
    await files.write('doc/1', text, { author: 'ada', contentType: 'text/plain', meta: { kind: 'letter' } });
  await locks.acquire('invoice:42', { lease: '10m' });
  void locks.acquire('invoice:42', { wait: '10m' }).catch(() => {});
  await until('somebody waits', async () => (await locks.query()).waiting.length === 1);
  return {
    engine,
    url,
    files,
    capture,
    addServer,
    objects,
    ids,
    stop,
    open: (options = {}) => {
      const common = { auth: OPEN_DOOR, rate: { burst: 100_000 }, files, captures: [capture], actors };
      const handler = createHttp(engine, { ...common, ...options });
      handlers.push(handler);
      return { handler, ask: (path, asked) => ask(handler, path, asked) };
    },
  };
}

async function furnish(
  engine: PostgresEngine,
): Promise<Pick<House, 'ids' | 'capture' | 'addServer'> & { actors: Actors }> {
  const mail = createQueue(engine, 'mail', { kinds: { send: {}, fail: { attempts: 1 } } });
  const later = createQueue(engine, 'later', { kinds: { one: {} }, shards: 2 });
  await later.enqueue('one', { n: 1 }, { key: 'k', runAt: new Date('2100-01-01') });
  await mail.schedule('nightly', { cron: '0 3 * * *', kind: 'send', payload: { to: 'all' } });
  const { id: complete } = await mail.enqueue('send', JSON.parse(BIG), { key: 'ada' });
  const { id: failed } = await mail.enqueue('fail', {});
  const worker = mail.work({
    send: async () => ({ sent: true }),
    fail: async () => {
      throw new Error('no such mailbox');
    },
  });
  await mail.drain();
  await worker.stop();
  const { id: waiting } = await mail.enqueue('send', { to: 'bob' });
  const Server = actor('server', {
    initial: 'creating',
    fieldHistory: '1h',
    semaphores: ['configure', 'destroy'],
    always: { destroy: 'gone' },
    states: {
      creating: state({
        to: ['running'],
        run: async (a) => a.to('running', { starts: (a.fields['starts'] ?? 0) + 1 }),
      }),
      running: state({
        to: ['creating'],
        run: async (a) => (a.fields['starts'] < 2 ? a.to('creating') : a.hibernate()),
      }),
      gone: state({ to: [], run: async (a) => a.done() }),
    },
  });
  const actors = createActors(engine, [Server]);
  const addServer = async (): Promise<string> => (await actors.create(Server, {})).id;
  const actorId = await addServer();
  await actors.work(actorId);
  await engine.query(statement('test.person', 'create table person (id bigint primary key, name text, secret text)'));
  const capture = createCapture(engine, {
    entity: 'person',
    root: 'person',
    history: { person: { rows: 'both', columns: ['id', 'name', 'secret'] } },
  });
  capture.project({
    into: 'badge',
    columns: { name: 'text' },
    build: sql`select p.id, p.name from person p where p.id = any ($1::bigint[])`,
  });
  await capture.apply();
  await engine.query(statement('test.ada', "insert into person values (1, 'Ada', 's3')"));
  const { id: page } = await actors.page({ tag: 'disk', summary: 'the disk is full', severity: 'warning' });
  return { ids: { complete, failed, waiting, actor: actorId, page }, capture, actors, addServer };
}

async function ask(
  handler: HttpHandler,
  path: string,
  { method = 'GET', body, headers = {}, from = '127.0.0.1' }: RequestOptions = {},
): Promise<Answer> {
  const request = new Request(new URL(path, 'http://localhost'), {
    method,
    headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const response = await handler(request, from === null ? {} : { remoteAddress: from });
  const text = await response.text();
  const isJson = response.headers.get('content-type')?.startsWith('application/json') === true;
  return {
    status: response.status,
    headers: response.headers,
    text,
    body: isJson && text !== '' ? JSON.parse(text) : {},
  };
}
