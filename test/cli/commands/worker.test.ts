import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { behindNpm } from '../../../src/cli/worker/behind-npm.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueueAdmin, type QueueAdmin } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { pawl, type Running, startPawl } from '../pawl.ts';

const CONFIG = fileURLToPath(new URL('workers.mjs', import.meta.url));

async function startWorker(...args: string[]): Promise<{ admin: QueueAdmin; worker: Running; url: string }> {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const worker = startPawl(['worker', '--config', CONFIG, ...args], { url });
  await worker.said(/queue worker: it polls for work/);
  return { admin: createQueueAdmin(engine), worker, url };
}

async function enqueue(admin: QueueAdmin, kind: string): Promise<string> {
  const { id } = await admin.enqueue('chores', kind, {});
  await until('the job is claimed', async () => (await admin.get(id)).status !== 'new');
  return id;
}

test('SIGTERM ends a worker in order: the running job completes, its outcome is written, the code is 0', async () => {
  const { admin, worker } = await startWorker();
  const id = await enqueue(admin, 'slow');
  worker.signal('SIGTERM');
  const { code, stdout, stderr } = await worker.ended;
  expect({ code, stdout }).toEqual({ code: 0, stdout: '' });
  expect(stderr).toMatch(/stopping[^]*stopped/);
  expect(await admin.get(id)).toMatchObject({ status: 'complete', result: 'done' });
  expect(await admin.workers('chores')).toEqual([]);
});

test('a second signal does not wait for jobs that do not end', async () => {
  const { admin, worker } = await startWorker();
  await enqueue(admin, 'stuck');
  worker.signal('SIGINT');
  await worker.said(/stopping/);
  worker.signal('SIGINT');
  expect((await worker.ended).code).toBe(130);
});

test('--stop-timeout bounds the wait: the job goes back', async () => {
  const { admin, worker } = await startWorker('--stop-timeout', '200ms');
  const id = await enqueue(admin, 'stuck');
  worker.signal('SIGTERM');
  expect((await worker.ended).code).toBe(0);
  expect(await admin.get(id)).toMatchObject({ status: 'new' });
});

test('a failing job is a line of the log, with what became of it', async () => {
  const { admin, worker } = await startWorker();
  const id = await enqueue(admin, 'broken');
  await worker.said(/job failed/);
  const line =
    worker
      .stderr()
      .split('\n')
      .find((text) => text.includes('job failed')) ?? '';
  expect(JSON.parse(line)).toMatchObject({ level: 'error', queue: 'chores', kind: 'broken', job: id, to: 'error' });
});

test('without a schema it says which command to run, and begins once that was done', async () => {
  const { url } = await freshDatabase({ migrated: false });
  const worker = startPawl(['worker', '--config', CONFIG], { url });
  await worker.said(/run \\?"pawl migrate\\?"/);
  expect(worker.stderr()).not.toContain('npm has started');
  expect((await pawl(['migrate'], { url })).code).toBe(0);
  await worker.said(/queue worker: it polls for work/);
});

test('a config file without workers is a wrong usage that shows a right one', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-cli-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const refused = ['export default {}', 'export default { workers: [] }', 'export default { workers: [{ queue: 1 }] }'];
  for (const [index, text] of refused.entries()) {
    const file = join(folder, `${index}.mjs`);
    writeFileSync(file, text);
    const { code, stderr } = await pawl(['worker', '--config', file], { url: 'postgres://localhost/none' });
    expect(code).toBe(2);
    expect(stderr).toMatch(/workers[^]*next:.*export default/);
  }
  expect((await pawl(['worker'], { cwd: folder })).code).toBe(2);
});

test('a config file in TypeScript that this Node does not read is told what does', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-cli-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }');
  writeFileSync(join(folder, 'queue.ts'), 'export const workers = [];');
  const texts = ["import './queue.js';", "import './queue';", 'enum Kind { mail }'];
  for (const [index, text] of texts.entries()) {
    const file = join(folder, `${index}.ts`);
    writeFileSync(file, text);
    const { code, stderr } = await pawl(['worker', '--config', file], { url: 'postgres://localhost/none' });
    expect(code).toBe(2);
    expect(stderr).toContain('--import tsx');
  }
  writeFileSync(join(folder, 'missing.mjs'), "import './queue.js';");
  const { stderr } = await pawl(['worker', '--config', join(folder, 'missing.mjs')], {
    url: 'postgres://localhost/none',
  });
  expect(stderr).toContain('node missing.mjs shows the error');
});

test('started by npm, which passes no SIGTERM on, it says how to start it instead', async () => {
  expect(behindNpm({ npm_lifecycle_script: 'vitest run' })).toBeUndefined();
  expect(behindNpm({ npm_lifecycle_script: 'exec pawl worker --config workers.mjs' })).toBeUndefined();
  expect(behindNpm({ npm_lifecycle_script: 'pawl worker --config workers.mjs' })).toContain('SIGTERM');
  const env = { npm_lifecycle_event: 'npx', npm_lifecycle_script: "'pawl'" };
  const worker = startPawl(['worker', '--config', CONFIG], { url: (await freshDatabase()).url, env });
  await worker.said(/npm has started this worker.*node_modules\/\.bin\/pawl/);
});

test('--once runs what is ready, prints what became of it, and ends', async () => {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const none = await pawl(['worker', '--config', CONFIG, '--once', '-o', 'json'], { url });
  expect(none).toMatchObject({ code: 0 });
  const admin = createQueueAdmin(engine);
  const { id } = await admin.enqueue('chores', 'slow', {});
  const { code, stdout } = await pawl(['worker', '--config', CONFIG, '--once', '-o', 'json'], { url });
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toEqual([expect.objectContaining({ queue: 'chores', complete: 1, error: 0 })]);
  expect(await admin.get(id)).toMatchObject({ status: 'complete' });
});

test('--once lets the jobs that run end before it says why another queue cannot be worked on', async () => {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const config = fileURLToPath(new URL('taken.mjs', import.meta.url));
  const once = (): ReturnType<typeof pawl> => pawl(['worker', '--config', config, '--once'], { url });
  expect((await once()).code).toBe(0);
  const admin = createQueueAdmin(engine);
  const { id } = await admin.enqueue('media', 'encode', {});
  // The other queue is refused while that job runs.
  await engine.transaction(({ client }) =>
    client.query({
      text: `
        create function refuse() returns trigger language plpgsql as $$ begin
          if new.queue = (select id from pawl.queue_definition where name = 'paper') then
            while not exists (select from pawl.queue_running) loop perform pg_sleep(0.02); end loop;
            raise exception 'paper is out' using errcode = 'PW001';
          end if;
          return new;
        end $$;
        create trigger refuse before insert on pawl.queue_worker for each row execute function refuse()`,
    }),
  );
  const { code, stderr } = await once();
  expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringMatching(/paper is out/) });
  expect(await admin.get(id)).toMatchObject({ status: 'complete' });
});

test('worker release gives back the jobs of a worker that stands still', async () => {
  const { admin, worker, url } = await startWorker();
  const id = await enqueue(admin, 'stuck');
  worker.signal('SIGSTOP');
  onTestFinished(() => worker.signal('SIGKILL'));
  const [listed] = await admin.workers('chores');
  const number = listed?.id ?? '';
  const release = ['worker', 'release', number];
  expect((await pawl([...release, '--dry-run'], { url })).stderr).toMatch(/would be released, with 1 jobs/);
  const { code, stdout } = await pawl([...release, '-o', 'json'], { url });
  expect({ code, stdout: JSON.parse(stdout) as unknown }).toEqual({
    code: 0,
    stdout: { worker: number, jobs: 1, left: 0 },
  });
  expect(await admin.get(id)).toMatchObject({ status: 'new' });
  expect((await pawl(release, { url })).code).toBe(4);
});

test('--kinds and --priority run a part of the work', async () => {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const config = fileURLToPath(new URL('taken.mjs', import.meta.url));
  const once = (...args: string[]): ReturnType<typeof pawl> =>
    pawl(['worker', '--config', config, '--once', '-o', 'json', ...args], { url });
  expect((await once()).code).toBe(0);
  await createQueueAdmin(engine).enqueue('media', 'encode', {});
  await createQueueAdmin(engine).enqueue('media', 'mail', {});
  await createQueueAdmin(engine).enqueue('media', 'mail', {}, { priority: -1 });
  const { code, stdout } = await once('--kinds', 'mail', '--priority', '..-1');
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toEqual([expect.objectContaining({ queue: 'media', complete: 1 })]);
  expect(await once('--kinds', 'male')).toMatchObject({ code: 2, stderr: expect.stringMatching(/kind "male"/) });
  expect((await once('--priority', '5')).code).toBe(2);
});
