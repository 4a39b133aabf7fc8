import { execFile, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { sharedDynamo } from '../support/dynamodb.ts';
import { until } from '../support/eventually.ts';
import { type RunningProgram, readWorkbook, SECRET, signToken, start, startHere } from './processes.ts';

const run = promisify(execFile);
const MAIN = fileURLToPath(new URL('../../dist-examples/spreadsheets/main.js', import.meta.url));
const local = await sharedDynamo();
const AWS = {
  AWS_ENDPOINT_URL: local.endpoint,
  AWS_REGION: 'local',
  AWS_ACCESS_KEY_ID: 'local',
  AWS_SECRET_ACCESS_KEY: 'local',
};
const COLUMNS = ['Country', 'Population'];

interface Sheet {
  readonly job?: string;
  readonly version?: number;
  readonly status?: string;
  readonly error?: { readonly code: string };
  readonly requests?: readonly { readonly id: string; readonly kind: string; readonly status: string }[];
  readonly history?: readonly { readonly job: string; readonly to: string; readonly reason: string }[];
}

let folder: string;
let env: Record<string, string>;
let frontEnd: RunningProgram;
let token: string;

async function call(path: string, body?: object): Promise<{ status: number; body: Sheet }> {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const init = body === undefined ? { headers } : { method: 'POST', headers, body: JSON.stringify(body) };
  const response = await fetch(new URL(path, frontEnd.url), init);
  return { status: response.status, body: (await response.json()) as Sheet };
}

function written(id: string, version: number): Promise<Sheet> {
  return until(`version ${version} of ${id} is written`, async () => {
    const { body } = await call(`/spreadsheets/${id}`);
    return body.status === 'ready' && body.version === version ? body : undefined;
  });
}

async function cellsOf(id: string): Promise<unknown> {
  const headers = { authorization: `Bearer ${token}` };
  const response = await fetch(new URL(`/spreadsheets/${id}/file`, frontEnd.url), { headers });
  return readWorkbook(Buffer.from(await response.arrayBuffer()));
}

describe.skipIf(local.kind === 'dynalite')('the spreadsheets on DynamoDB', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'pawl-test-sheets-'));
    const table = `sheets-${randomUUID().slice(0, 8)}`;
    env = {
      ...AWS,
      SPREADSHEETS_ENGINE: 'dynamodb',
      SPREADSHEETS_TABLE: table,
      SPREADSHEETS_DIR: folder,
      SPREADSHEETS_GATHER: '300',
    };
    frontEnd = await start('spreadsheets/front-end.js', env);
    token = await signToken(SECRET, 'tester');
  });

  afterAll(async () => {
    await frontEnd.child.stop();
    await rm(folder, { recursive: true, force: true });
  });

  // The first of all: nothing else is settled before.
  test('a back end that is killed between the file and the outcome of its jobs leaves nothing that is done again', async () => {
    await call('/spreadsheets', { id: 'cities', columns: COLUMNS, rows: [['Oslo', 1]] });
    const brief = { ...env, SPREADSHEETS_LEASE: '1000' };
    const doomed = await startHere('spreadsheets/back-end.js', { ...brief, PAWL_FAULT: 'queue.before_settle:kill' });
    await doomed.child.exited;
    expect((await call('/spreadsheets/cities')).body).toMatchObject({ version: 1 });
    await startHere('spreadsheets/back-end.js', brief);
    const { requests = [] } = await written('cities', 1);
    // It has run twice, and was applied once.
    expect(requests).toMatchObject([{ kind: 'create', status: 'complete', attempt: 2 }]);
    expect(await cellsOf('cities')).toEqual([COLUMNS, ['Oslo', 1]]);
    expect((await readdir(folder)).filter((name) => name.startsWith('cities.'))).toHaveLength(1);
  });

  test('of ten creates of one name one is new, twenty updates are one unit, and every cell is right', async () => {
    const sheet = { id: 'nordic', columns: COLUMNS, rows: [['Norway', 1]] };
    const answers = await Promise.all(Array.from({ length: 10 }, () => call('/spreadsheets', sheet)));
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(9);
    expect(new Set(answers.map(({ body }) => body.job)).size).toBe(1);
    expect((await call('/spreadsheets/nordic')).body).toMatchObject({ status: 'creating', version: 0 });
    for (let n = 1; n <= 20; n += 1) {
      const rows = [
        ['Norway', n],
        [`New ${n}`, n],
      ];
      expect((await call('/spreadsheets/nordic/updates', { rows })).status).toBe(202);
    }
    await startHere('spreadsheets/back-end.js', env);
    const { requests = [], history = [] } = await written('nordic', 2);
    expect(requests.map(({ kind, status }) => `${kind} ${status}`)).toEqual(
      Array.from({ length: 20 }, () => 'update complete'),
    );
    expect(history.filter(({ to }) => to === 'complete')).toHaveLength(20);
    expect(await cellsOf('nordic')).toEqual([
      COLUMNS,
      ['Norway', 20],
      ...Array.from({ length: 20 }, (_, n) => [`New ${n + 1}`, n + 1]),
    ]);
    expect((await call('/spreadsheets', { ...sheet, id: 'huge', rows: [['x'.repeat(2000)]] })).status).toBe(400);
  });

  test('main.js --engine dynamodb: back ends are killed, nothing is lost, nothing is done twice, every cell is right', async () => {
    const table = `sheets-${randomUUID().slice(0, 8)}`;
    const { stdout, stderr } = await run(
      process.execPath,
      [MAIN, '--engine', 'dynamodb', '--exit-after', '4', '--seed', '7', '--json'],
      { env: { ...process.env, ...AWS, SPREADSHEETS_TABLE: table }, cwd: folder, timeout: 110_000 },
    );
    const figures: Record<string, unknown> = JSON.parse(stdout);
    expect(figures, stderr.slice(-4000)).toMatchObject({ ok: true, error: 0, lost: 0, doubleRuns: 0 });
    expect(figures['complete']).toBe(figures['enqueued']);
    expect(figures['workersKilled']).toBeGreaterThanOrEqual(1);
    expect(figures['filesChecked']).toBeGreaterThan(0);
  });

  test('main.js ends, with all that it has started, when its reader is gone', async () => {
    const table = `sheets-${randomUUID().slice(0, 8)}`;
    const program = spawn(process.execPath, [MAIN, '--engine', 'dynamodb'], {
      env: { ...process.env, ...AWS, SPREADSHEETS_TABLE: table },
      cwd: folder,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    onTestFinished(() => void program.kill('SIGKILL'));
    const exited = once(program, 'exit');
    await once(program.stderr, 'data');
    program.stdout.destroy();
    program.stderr.destroy();
    expect(await exited).toEqual([0, null]);
  });
});

test('without Java and without a DynamoDB, main.js says what to do', async () => {
  const { code, stderr } = await run(process.execPath, [MAIN, '--engine', 'dynamodb'], { env: { PATH: '' } }).then(
    () => ({ code: 0, stderr: '' }),
    ({ code, stderr }: { code: number; stderr: string }) => ({ code, stderr }),
  );
  expect({ code, stderr }).toEqual({
    code: 1,
    stderr:
      'there is no Java, and DynamoDB Local needs 17: install that, or say where a DynamoDB is, by AWS_ENDPOINT_URL or AWS_REGION\n',
  });
});

test('an engine that there is not is refused, and so is a misspelt option', async () => {
  const tried = (...args: string[]): Promise<string> =>
    run(process.execPath, [MAIN, ...args], { env: {} }).then(
      ({ stdout }) => stdout,
      ({ stderr }: { stderr: string }) => stderr,
    );
  expect(await tried('--engine', 'oracle')).toContain('--engine must be postgres or dynamodb, not "oracle"');
  expect(await tried('--engien', 'dynamodb')).toContain("Unknown option '--engien'");
});
