import { once } from 'node:events';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { serveHealth } from '../../../src/cli/worker/health.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueueAdmin } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { startProxy } from '../../support/proxy.ts';
import { pawl, type Running, startPawl } from '../pawl.ts';

const CONFIG = fileURLToPath(new URL('workers.mjs', import.meta.url));

interface Answer {
  readonly status: number;
  readonly body: { readonly status?: string; readonly problems?: readonly { name: string; problem: string }[] };
}

interface WorkerUnderWatch {
  readonly worker: Running;
  readonly ask: (path: string, method?: string) => Promise<Answer>;
  /** Waits until `/readyz` answers so, with a problem of these words. */
  readonly becomes: (status: number, words?: RegExp) => Promise<void>;
}

async function startWatched(url: string): Promise<WorkerUnderWatch> {
  const worker = startPawl(['worker', '--config', CONFIG, '--health', '127.0.0.1:0'], { url });
  await worker.said(/health: it answers/);
  const port = /"port":(\d+)/.exec(worker.stderr())?.[1] ?? '';
  const ask = async (path: string, method = 'GET'): Promise<Answer> => {
    const answer = await fetch(`http://127.0.0.1:${port}${path}`, { method });
    const text = await answer.text();
    return { status: answer.status, body: text === '' ? {} : JSON.parse(text) };
  };
  const becomes = async (status: number, words = /^$/): Promise<void> => {
    let last: Answer | undefined;
    await until(`/readyz answers ${status}, ${words}`, async () => {
      last = await ask('/readyz');
      const told = last.body.problems?.map(({ name, problem }) => `${name}: ${problem}`).join('\n') ?? '';
      return last.status === status && words.test(told);
    }).catch((cause: unknown) => {
      throw new Error(`it answered ${JSON.stringify(last)}; ${worker.stderr()}`, { cause });
    });
  };
  return { worker, ask, becomes };
}

test('a worker is ready once it polls for work, and answers nothing else', async () => {
  const { url } = await freshDatabase();
  const { worker, ask, becomes } = await startWatched(url);
  await becomes(200);
  expect(await ask('/healthz')).toEqual({ status: 200, body: { status: 'ok' } });
  expect(await ask('/readyz?now', 'HEAD')).toEqual({ status: 200, body: {} });
  expect((await ask('/')).status).toBe(404);
  expect((await ask('/readyz', 'POST')).status).toBe(405);
  worker.signal('SIGTERM');
  expect(await worker.ended).toMatchObject({ code: 0 });
});

test('a worker says in one line that it has started', async () => {
  const { url } = await freshDatabase();
  const { worker, becomes } = await startWatched(url);
  await becomes(200);
  await worker.said(/polls for work/);
  worker.signal('SIGTERM');
  const { stderr } = await worker.ended;
  const started = stderr.split('\n').filter((line) => line.includes('"queue":"chores"'));
  expect(started).toHaveLength(1);
  expect(JSON.parse(started[0] ?? '')).toMatchObject({ level: 'info', concurrency: 2, hold: 'lease' });
  expect(stderr).not.toContain(new URL(url).password);
});

test.each([
  ['refuses connections', 'refuse'],
  ['is silent', 'silence'],
] as const)('a worker is not ready while its database %s, and ready again after it', async (_, fault) => {
  const { url } = await freshDatabase();
  const proxy = await startProxy(url);
  onTestFinished(() => proxy.stop());
  const { ask, becomes } = await startWatched(proxy.url);
  await becomes(200);
  proxy[fault]();
  await becomes(503, /^queue chores: ./);
  // To start it anew would bring no database back.
  expect((await ask('/healthz')).status).toBe(200);
  proxy.accept();
  if (fault === 'silence') proxy.cut();
  await becomes(200);
});

test('a worker without a schema is not ready, and says why, until it is migrated', async () => {
  const { url } = await freshDatabase({ migrated: false });
  const { becomes } = await startWatched(url);
  await becomes(503, /^queue chores: it has not started yet: .*pawl migrate/);
  expect((await pawl(['migrate'], { url })).code).toBe(0);
  await becomes(200);
});

test('a worker that stops is not ready any more, and still lives, until its last job has ended', async () => {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const admin = createQueueAdmin(engine);
  const { worker, ask, becomes } = await startWatched(url);
  await becomes(200);
  const { id } = await admin.enqueue('chores', 'stuck', {});
  await until('the job runs', async () => (await admin.get(id)).status === 'in-progress');
  worker.signal('SIGTERM');
  await becomes(503, /^queue chores: it is stopping$/);
  expect((await ask('/healthz')).status).toBe(200);
  worker.signal('SIGTERM');
  expect((await worker.ended).code).toBe(143);
});

test('a port that is none, or is taken, is a wrong usage', async () => {
  const { url } = await freshDatabase();
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const address = server.address();
  const taken = typeof address === 'object' && address !== null ? address.port : 0;
  for (const [given, said] of [
    ['http', /must be a port/],
    ['99999', /must be a port/],
    [`127.0.0.1:${taken}`, /--health cannot listen: .*EADDRINUSE[^]*next:/],
  ] as const) {
    const { code, stderr } = await pawl(['worker', '--config', CONFIG, '--health', given], { url });
    expect({ given, code }).toEqual({ given, code: 2 });
    expect(stderr).toMatch(said);
  }
});

test('a connection that a health server could not accept ends nothing', async () => {
  const server = await serveHealth({ host: '127.0.0.1', port: 0 }, []);
  onTestFinished(() => void server.close());
  // As node:net reports it when the process has no file descriptor left.
  server.emit('error', Object.assign(new Error('accept EMFILE'), { code: 'EMFILE' }));
  const { port } = server.address() as { port: number };
  expect((await fetch(`http://127.0.0.1:${port}/healthz`)).status).toBe(200);
});
