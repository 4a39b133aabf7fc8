import { randomUUID } from 'node:crypto';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type * as RandomModule from '../../examples/random.ts';
import type * as StaffModule from '../../examples/spreadsheets/staff.ts';
import type { Exit } from '../../examples/spreadsheets/staff.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { compiled, type RunningProgram, readWorkbook, SECRET, signToken, start, startHere } from './processes.ts';

const { Staff } = await compiled<typeof StaffModule>('spreadsheets/staff.js');
const { Random } = await compiled<typeof RandomModule>('random.js');

const MAX_BODY = 100_000;

let database: FreshDatabase;
let folder: string;
let env: Record<string, string>;
let frontEnd: RunningProgram;
let token: string;
let sql: pg.Pool;

beforeAll(async () => {
  database = await freshDatabase();
  folder = await mkdtemp(join(tmpdir(), 'pawl-test-sheets-'));
  env = { DATABASE_URL: database.url, SPREADSHEETS_DIR: folder };
  frontEnd = await start('spreadsheets/front-end.js', { ...env, SPREADSHEETS_MAX_BODY: String(MAX_BODY) });
  token = await signToken(SECRET, 'tester');
  sql = new pg.Pool({ connectionString: database.url, max: 2 }).on('error', () => {});
});

afterAll(async () => {
  await frontEnd.child.stop();
  await sql.end();
  await database.drop();
  await rm(folder, { recursive: true, force: true });
});

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // The answer of any route; each test asks for what it knows is there.
  readonly body: {
    readonly id?: string;
    readonly job?: string;
    readonly duplicate?: boolean;
    readonly status?: string;
    readonly version?: number;
    readonly error?: { readonly code: string; readonly field?: string; readonly message: string };
    readonly requests?: readonly { readonly id: string; readonly kind: string; readonly status: string }[];
    readonly history?: readonly { readonly job: string; readonly to: string; readonly processId: string | null }[];
    readonly file?: string | null;
    readonly ok?: boolean;
  };
}

async function call(path: string, init: RequestInit = {}): Promise<Answer> {
  const headers = new Headers(init.headers);
  if (!headers.has('authorization')) headers.set('authorization', `Bearer ${token}`);
  const response = await fetch(new URL(path, frontEnd.url), { ...init, headers });
  return { status: response.status, headers: response.headers, body: JSON.parse(await response.text()) };
}

function post(path: string, body: unknown): Promise<Answer> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return call(path, { method: 'POST', body: text, headers: { 'content-type': 'application/json' } });
}

function postCsv(path: string, body: string): Promise<Answer> {
  return call(path, { method: 'POST', body, headers: { 'content-type': 'text/csv; charset=utf-8' } });
}

/** A name that no other test uses. */
function anId(): string {
  return `sheet-${randomUUID().slice(0, 8)}`;
}

const COLUMNS = ['Country', 'Population', 'Coastal', 'Note'];
const ROWS = [
  ['Norway', 5_577_000, true, 'Tromsø & <Bodø>'],
  ['Chad', 20_299_000, false, null],
];

async function aSheet(rows: readonly unknown[] = ROWS): Promise<string> {
  const id = anId();
  const { status } = await post('/spreadsheets', { id, columns: COLUMNS, rows });
  expect(status).toBe(201);
  return id;
}

async function download(id: string): Promise<unknown[][]> {
  const response = await fetch(new URL(`/spreadsheets/${id}/file`, frontEnd.url), {
    headers: { authorization: `Bearer ${token}` },
  });
  expect(response.status).toBe(200);
  expect(response.headers.get('content-type')).toContain('spreadsheetml');
  return readWorkbook(Buffer.from(await response.arrayBuffer()));
}

function written(id: string, version: number): Promise<Answer> {
  return until(`version ${version} of ${id} is written`, async () => {
    const answer = await call(`/spreadsheets/${id}`);
    return answer.body.status === 'ready' && answer.body.version === version ? answer : undefined;
  });
}

/** Jobs of a spreadsheet that were done more than once. */
async function doubles(id: string): Promise<number> {
  const { rowCount } = await sql.query(
    `select job from spreadsheet_run where applied_at is not null and job in (select id from pawl.job where key = $1)
     group by job having count(*) > 1`,
    [id],
  );
  return rowCount ?? 0;
}

async function leftovers(id: string): Promise<string[]> {
  return (await readdir(folder)).filter((name) => name.startsWith(`${id}.`));
}

describe('the front end, with no back end running', () => {
  test('says that it is well, to anybody', async () => {
    const response = await fetch(new URL('/healthz', frontEnd.url));
    expect(response.status).toBe(200);
    expect(await response.json()).toMatchObject({ ok: true });
  });

  test('answers 401 to a token that is missing, broken, expired, signed by another, or meant for another service', async () => {
    const sign = (secret: string, audience: string, expires: string): Promise<string> =>
      new SignJWT()
        .setProtectedHeader({ alg: 'HS256' })
        .setSubject('mallory')
        .setAudience(audience)
        .setExpirationTime(expires)
        .sign(new TextEncoder().encode(secret));
    const unsigned = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${token.split('.')[1]}.`;
    const bad = [
      '',
      'Bearer',
      'Bearer x.y.z',
      `Basic ${token}`,
      `Bearer ${unsigned}`,
      `Bearer ${await sign('another secret that is long enough', 'spreadsheets', '1h')}`,
      `Bearer ${await sign(SECRET, 'spreadsheets', '-1s')}`,
      `Bearer ${await sign(SECRET, 'another', '1h')}`,
    ];
    for (const authorization of bad) {
      const { status, body, headers } = await call('/spreadsheets/x', { headers: { authorization } });
      expect({ authorization, status, code: body.error?.code }).toEqual({
        authorization,
        status: 401,
        code: 'bad_token',
      });
      expect(headers.get('www-authenticate')).toBe('Bearer');
    }
  });

  test.each([
    ['id', { columns: ['A'] }],
    ['id', { id: '../etc', columns: ['A'] }],
    ['columns', { id: 'a', columns: [] }],
    ['columns', { id: 'a', columns: ['A', 'A'] }],
    ['columns.1', { id: 'a', columns: ['A', ''] }],
    ['rows.1.0', { id: 'a', columns: ['A'], rows: [['x'], [{}]] }],
    ['rows.0.0', { id: 'a', columns: ['A'], rows: [['a\u0000b']] }],
    ['rows.1', { id: 'a', columns: ['A', 'B'], rows: [['x', 1], ['y']] }],
    ['rows.0.0', { id: 'a', columns: ['A'], rows: [[7]] }],
    ['rows.1.0', { id: 'a', columns: ['A'], rows: [['x'], ['x']] }],
    ['nonsense', { id: 'a', columns: ['A'], nonsense: 1 }],
  ])('answers 400 and names the field: %s', async (field, body) => {
    const answer = await post('/spreadsheets', body);
    expect({ status: answer.status, ...answer.body.error }).toMatchObject({ status: 400, code: 'bad_body', field });
  });

  test('answers 400 to JSON and CSV that are none, 415 to what is neither', async () => {
    expect(await post('/spreadsheets', '{"id":')).toMatchObject({ status: 400, body: { error: { code: 'bad_json' } } });
    expect(await postCsv('/spreadsheets?id=a', 'A,B\n"x,1\n')).toMatchObject({
      status: 400,
      body: { error: { code: 'bad_csv' } },
    });
    const xml = await call('/spreadsheets', { method: 'POST', body: '<a/>', headers: { 'content-type': 'text/xml' } });
    expect(xml).toMatchObject({ status: 415, body: { error: { code: 'unsupported_type' } } });
  });

  test('answers 413 to a body over the limit, whether its length is told or not', async () => {
    const big = JSON.stringify({ id: anId(), columns: ['A'], rows: [['x'.repeat(MAX_BODY)]] });
    expect(await post('/spreadsheets', big)).toMatchObject({ status: 413, body: { error: { code: 'too_large' } } });
    const init = {
      method: 'POST',
      body: new Blob([big]).stream(),
      duplex: 'half' as const,
      headers: { 'content-type': 'application/json' },
    };
    expect(await call('/spreadsheets', init)).toMatchObject({ status: 413 });
  });

  test('answers 404 to an unknown id, and to a file that is still to be written', async () => {
    const unknown = { status: 404, body: { error: { code: 'unknown_id' } } };
    expect(await call('/spreadsheets/nowhere')).toMatchObject(unknown);
    expect(await call('/spreadsheets/nowhere/file')).toMatchObject(unknown);
    expect(await post('/spreadsheets/nowhere/updates', { rows: [['x']] })).toMatchObject(unknown);
    const id = await aSheet();
    expect(await call(`/spreadsheets/${id}/file`)).toMatchObject({
      status: 404,
      body: { error: { code: 'not_written' } },
    });
    expect(await call('/elsewhere')).toMatchObject({ status: 404, body: { error: { code: 'no_route' } } });
  });

  test('takes creates and updates, and tells where they are', async () => {
    const id = await aSheet();
    const update = await post(`/spreadsheets/${id}/updates`, { rows: [['Norway', 1, true, '']], remove: ['Chad'] });
    expect(update.status).toBe(202);
    const { body } = await call(`/spreadsheets/${id}`);
    expect(body).toMatchObject({ id, status: 'creating', version: 0, file: null });
    expect(body.requests?.map(({ kind, status }) => `${kind} ${status}`)).toEqual(['update new', 'create new']);
    expect(body.history?.map(({ to }) => to)).toEqual(['new', 'new']);
    expect(body.requests?.[0]?.id).toBe(update.body.job);
  });

  test('answers 400 to an update that does not fit the sheet', async () => {
    const id = await aSheet();
    const narrow = await post(`/spreadsheets/${id}/updates`, { rows: [['Norway', 1]] });
    expect(narrow).toMatchObject({ status: 400, body: { error: { field: 'rows.0' } } });
    expect(await post(`/spreadsheets/${id}/updates`, {})).toMatchObject({
      status: 400,
      body: { error: { field: 'body' } },
    });
  });

  test('answers a repeated create with 200 and the first one, even when ten come at once', async () => {
    const id = anId();
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => post('/spreadsheets', { id, columns: COLUMNS })),
    );
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(9);
    expect(new Set(answers.map(({ body }) => `${body.id} ${body.job}`)).size).toBe(1);
    const { rows } = await sql.query('select count(*)::int as n from pawl.job where key = $1', [id]);
    expect(rows).toEqual([{ n: 1 }]);
  });

  test('takes a create from CSV, quotes, line ends and numbers included', async () => {
    const id = anId();
    const csv =
      '\uFEFFCity,Population,"Note, if any"\r\n"Washington, D.C.",689545,"the ""District"""\r\nOslo,717000,\r\n007,1.5,"12"\r\n';
    expect((await postCsv(`/spreadsheets?id=${id}`, csv)).status).toBe(201);
    const { rows } = await sql.query('select payload from pawl.job where key = $1', [id]);
    expect(rows[0]?.payload).toEqual({
      columns: ['City', 'Population', 'Note, if any'],
      rows: [
        ['Washington, D.C.', 689_545, 'the "District"'],
        ['Oslo', 717_000, null],
        ['007', 1.5, '12'],
      ],
    });
  });
});

describe('the back ends', () => {
  test('write what was asked for, cell by cell', async () => {
    const id = await aSheet([...ROWS, ['_x0041_', -1e-7, false, '=1+1'], ['日本 🎉', 0.1 + 0.2, true, ' ']]);
    await startHere('spreadsheets/back-end.js', env);
    const { body } = await written(id, 1);
    expect(body.file).toBe(`/spreadsheets/${id}/file`);
    expect(await download(id)).toEqual([
      COLUMNS,
      ...ROWS,
      ['_x0041_', -1e-7, false, '=1+1'],
      ['日本 🎉', 0.1 + 0.2, true, null],
    ]);
  });

  test('do twenty updates that wait as one unit', async () => {
    const first = await startHere('spreadsheets/back-end.js', env);
    const id = await aSheet();
    await written(id, 1);
    // On a slow machine they would not come as fast as they are done.
    await first.child.stop();
    const jobs: (string | undefined)[] = [];
    for (let n = 1; n <= 20; n += 1) {
      jobs.push(
        (
          await post(`/spreadsheets/${id}/updates`, {
            rows: [
              ['Norway', n, true, null],
              [`New ${n}`, n, null, null],
            ],
          })
        ).body.job,
      );
    }
    await startHere('spreadsheets/back-end.js', env);
    await startHere('spreadsheets/back-end.js', env);
    const { body } = await written(id, 2);
    const completions = body.history?.filter(({ to }) => to === 'complete') ?? [];
    expect(new Set(completions.map(({ job }) => job))).toEqual(new Set(jobs));
    expect(new Set(completions.map(({ processId }) => processId)).size).toBe(1);
    const cells = await download(id);
    expect(cells[1]).toEqual(['Norway', 20, true, null]);
    expect(cells).toHaveLength(1 + 2 + 20);
    expect(await doubles(id)).toBe(0);
  });

  test('leave no half file when killed in the middle of one, and the next one does the work', async () => {
    const id = await aSheet();
    const slow = await startHere('spreadsheets/back-end.js', { ...env, SPREADSHEETS_PAUSE: '60000' });
    await until('the file is half written', async () => (await leftovers(id)).some((name) => name.endsWith('.part')));
    await slow.child.kill();
    expect((await call(`/spreadsheets/${id}`)).body).toMatchObject({ version: 0, file: null });
    await startHere('spreadsheets/back-end.js', env);
    await written(id, 1);
    expect(await download(id)).toEqual([COLUMNS, ...ROWS]);
    expect(await leftovers(id)).toHaveLength(1);
    expect(await doubles(id)).toBe(0);
  });

  test('write the same again when killed after the file, before the commit', async () => {
    const id = await aSheet();
    const doomed = await startHere('spreadsheets/back-end.js', { ...env, PAWL_FAULT: 'queue.before_settle:kill' });
    await doomed.child.exited;
    const orphans = await leftovers(id);
    expect((await call(`/spreadsheets/${id}`)).body).toMatchObject({ version: 0, file: null });
    await startHere('spreadsheets/back-end.js', env);
    await written(id, 1);
    expect(await download(id)).toEqual([COLUMNS, ...ROWS]);
    for (const orphan of orphans) expect(await leftovers(id)).not.toContain(orphan);
    expect(await doubles(id)).toBe(0);
  });

  test('keep the version that is there while the next one cannot be written', async () => {
    const id = await aSheet();
    const first = await startHere('spreadsheets/back-end.js', env);
    await written(id, 1);
    await first.child.stop();
    await post(`/spreadsheets/${id}/updates`, { remove: ['Chad'] });
    const slow = await startHere('spreadsheets/back-end.js', { ...env, SPREADSHEETS_PAUSE: '60000' });
    await until('version 2 is half written', async () => (await leftovers(id)).some((name) => name.endsWith('.part')));
    expect(await download(id)).toEqual([COLUMNS, ...ROWS]);
    await slow.child.kill();
    await startHere('spreadsheets/back-end.js', env);
    await written(id, 2);
    expect(await download(id)).toEqual([COLUMNS, ROWS[0]]);
  });

  test('end when asked to, and leave nothing that keeps the process alive', async () => {
    const { child } = await startHere('spreadsheets/back-end.js', env);
    // It is killed after ten seconds, and then has no code.
    await child.stop();
    expect(await child.exited).toEqual([0, null]);
  });
});

test('a file in the folder that is not a spreadsheet of ours is left alone', async () => {
  const id = await aSheet();
  await writeFile(join(folder, `${id}2.v1.1.xlsx`), 'not ours');
  await startHere('spreadsheets/back-end.js', env);
  await written(id, 1);
  expect(await readdir(folder)).toContain(`${id}2.v1.1.xlsx`);
});

test('a back end that somebody else told to end is no accident; one that broke is', async () => {
  const own = await freshDatabase();
  const gone: Exit[] = [];
  const staff = new Staff({
    env: { ...env, DATABASE_URL: own.url },
    random: new Random(1),
    size: 2,
    onWritten: () => {},
    onGone: (one) => gone.push(one),
  });
  const client = new pg.Client({ connectionString: own.url });
  try {
    await staff.start();
    await client.connect();
    const { rows } = await client.query<{ pid: number }>('select pid from pawl.queue_worker order by id');
    const [told = 0, broke = 0] = rows.map(({ pid }) => pid);
    process.kill(told, 'SIGINT');
    process.kill(broke, 'SIGKILL');
    await until('both are gone', () => gone.length === 2);
    expect(gone.find(({ pid }) => pid === told)).toMatchObject({ how: 'told' });
    expect(gone.find(({ pid }) => pid === broke)).toMatchObject({
      how: 'broke',
      lastWords: expect.stringContaining('SIGKILL'),
    });
  } finally {
    await staff.stop();
    await client.end();
    await own.drop();
  }
});
