import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type Context, Hono } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import { InvalidInput } from 'pawl/errors';
import { readCreate, readUpdate } from './body.ts';
import { Refusal } from './refusal.ts';
import type { SheetStore, Spreadsheet } from './store.ts';
import { verifyToken } from './token.ts';

/** What the front end works with. It never speaks to a back end: the database is all they share. */
export interface FrontEnd {
  readonly store: SheetStore;
  readonly folder: string;
  readonly secret: string;
  readonly maxBody: number;
  readonly gatherMs: number;
}

type Env = { Variables: { subject: string } };

const XLSX = 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet';
/** How many requests of a spreadsheet its page tells about. */
const SHOWN = 20;

export function routes(front: FrontEnd): Hono<Env> {
  const app = new Hono<Env>();
  app.get('/healthz', (c) => healthz(c, front));
  app.use('/spreadsheets/*', async (c, next) => {
    c.set('subject', await authenticate(c, front.secret));
    await next();
  });
  app.use('/spreadsheets/*', bodyLimit({ maxSize: front.maxBody, onError: () => tooLarge(front.maxBody) }));
  app.post('/spreadsheets', (c) => postSpreadsheet(c, front));
  app.post('/spreadsheets/:id/updates', (c) => postUpdate(c, front));
  app.get('/spreadsheets/:id', (c) => getSpreadsheet(c, front));
  app.get('/spreadsheets/:id/file', (c) => getFile(c, front));
  app.notFound((c) => c.json(new Refusal(404, 'no_route', `there is no ${c.req.method} ${c.req.path}`).body, 404));
  app.onError((error, c) => answer(c, front, error));
  return app;
}

async function healthz(c: Context<Env>, { store }: FrontEnd): Promise<Response> {
  return c.json({ ok: true, ...(await store.describe()) });
}

async function authenticate(c: Context<Env>, secret: string): Promise<string> {
  const [, token] = /^Bearer ([\w-]+\.[\w-]+\.[\w-]+)$/i.exec(c.req.header('authorization') ?? '') ?? [];
  const subject = token === undefined ? undefined : await verifyToken(secret, token);
  if (subject === undefined) throw new Refusal(401, 'bad_token', 'send a valid token: Authorization: Bearer …');
  return subject;
}

function tooLarge(maxBody: number): never {
  throw new Refusal(413, 'too_large', `the body is larger than ${maxBody} bytes; send the rest as updates`);
}

/** The spreadsheet and its job are written together: there is never one without the other. */
async function postSpreadsheet(c: Context<Env>, { store }: FrontEnd): Promise<Response> {
  const { id, ...payload } = await readCreate(c.req);
  const { job, duplicate } = await store.create(id, payload, c.get('subject'));
  const self = `/spreadsheets/${id}`;
  return c.json({ id, job, duplicate, self }, duplicate ? 200 : 201, { Location: self });
}

/** The first update of a quiet spreadsheet waits a second for others; all that come meanwhile are one unit, and one file. */
async function postUpdate(c: Context<Env>, { store, gatherMs }: FrontEnd): Promise<Response> {
  const { id, columns } = await findOr404(c, store);
  const payload = await readUpdate(c.req, columns);
  const { job } = await store.update(id, payload, gatherMs);
  return c.json({ id, job, self: `/spreadsheets/${id}` }, 202);
}

async function getSpreadsheet(c: Context<Env>, { store }: FrontEnd): Promise<Response> {
  const sheet = await findOr404(c, store);
  const requests = await store.requests(sheet.id, SHOWN);
  const outstanding = requests.filter(({ status }) => status === 'new' || status === 'in-progress').length;
  const { id, columns, version, createdBy, createdAt, writtenAt } = sheet;
  const failed = version === 0 && outstanding === 0;
  return c.json({
    id,
    status: outstanding > 0 ? (version === 0 ? 'creating' : 'updating') : failed ? 'error' : 'ready',
    version,
    columns,
    rows: sheet.rows.length,
    createdBy,
    createdAt,
    writtenAt,
    file: sheet.file === null ? null : `/spreadsheets/${id}/file`,
    outstanding,
    requests,
    history: await store.moves(requests),
  });
}

async function getFile(c: Context<Env>, front: FrontEnd): Promise<Response> {
  const { file, bytes, sheet } = await openFile(c, front);
  const etag = `"${file}"`;
  if (c.req.header('if-none-match') === etag) {
    bytes.destroy();
    return c.body(null, 304, { ETag: etag });
  }
  return c.body(Readable.toWeb(bytes) as ReadableStream, 200, {
    'Content-Type': XLSX,
    'Content-Disposition': `attachment; filename="${sheet.id}.xlsx"`,
    ETag: etag,
  });
}

async function openFile(
  c: Context<Env>,
  { store, folder }: FrontEnd,
): Promise<{ file: string; bytes: Readable; sheet: Spreadsheet }> {
  for (let attempt = 1; ; attempt += 1) {
    const sheet = await findOr404(c, store);
    if (sheet.file === null)
      throw new Refusal(404, 'not_written', `"${sheet.id}" is still to be written; try again soon`);
    try {
      const handle = await open(join(folder, sheet.file));
      return { file: sheet.file, bytes: handle.createReadStream(), sheet };
    } catch (error) {
      // Since the table was read, the file may have become an old version.
      if (attempt === 3 || !(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error;
    }
  }
}

async function findOr404(c: Context<Env>, store: SheetStore): Promise<Spreadsheet> {
  const id = c.req.param('id') ?? '';
  const sheet = await store.find(id);
  if (sheet === undefined) throw new Refusal(404, 'unknown_id', `there is no spreadsheet "${id}"`);
  return sheet;
}

function answer(c: Context<Env>, { store }: FrontEnd, error: unknown): Response {
  const refused = error instanceof Refusal ? error : asRefused(store, error);
  if (refused === undefined) {
    console.error(error);
    return c.json({ error: { code: 'internal', message: 'something is broken here; it has been logged' } }, 500);
  }
  if (refused.status === 401) c.header('WWW-Authenticate', 'Bearer');
  if (refused.status === 503 || refused.code === 'not_written') c.header('Retry-After', '1');
  return c.json(refused.body, refused.status);
}

function asRefused(store: SheetStore, error: unknown): Refusal | undefined {
  // What is wrong with a body has been said by now: the database has no room for it.
  if (error instanceof InvalidInput) return new Refusal(413, 'too_large', error.message);
  if (!store.isTransient(error)) return undefined;
  return new Refusal(503, 'unavailable', 'the database cannot be reached just now; try again');
}
