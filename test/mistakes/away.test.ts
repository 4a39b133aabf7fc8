import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { NOBODY, startProgram } from './program.ts';

const IMPORTS = `
  import { postgres } from 'pawl/postgres';
  import { createQueue } from 'pawl/queue';
  import { createLocks } from 'pawl/lock';
  import { actor, createActors } from 'pawl/actor';
`;

const WORKS = {
  'a worker': `createQueue(engine, 'mail', { kinds: { send: {} } }).work({ send: () => {} })`,
  'a dispatcher': `createActors(engine, [actor('door', { initial: 'shut', states: (state) => ({ shut: state({ run: (a) => a.stay() }) }) })]).run()`,
};

for (const [name, work] of Object.entries(WORKS)) {
  test(`${name} whose database is away keeps running, and reports it`, async () => {
    const program = startProgram(`${IMPORTS} const engine = postgres('${NOBODY}'); ${work}; console.log('begun');`);
    await until('the process reports it', () => /keeps trying/.test(program.stderr()));
    expect(program.stderr()).toMatch(/cannot be reached.*ECONNREFUSED/s);
    expect(program.isRunning()).toBe(true);
  });

  test(`a process whose only task was ${name} that gave up does not end with 0`, async () => {
    const { ended } = startProgram(`${IMPORTS}
      import { NotSupported } from 'pawl';
      const refuse = async () => { throw new NotSupported('no connection for anybody'); };
      const engine = postgres({ connect: refuse, on() {}, removeListener() {}, listenerCount: () => 1 });
      ${work};`);
    const { code, stderr } = await ended;
    expect(stderr).toMatch(/cannot start and gives up.*no connection for anybody/s);
    expect(code).toBe(1);
  });
}

test('a worker without a database reports that, and starts when the database exists', async () => {
  const { url, name } = await freshDatabase();
  const elsewhere = new URL(url);
  elsewhere.pathname = '/postgres';
  const admin = new pg.Client({ connectionString: elsewhere.href });
  await admin.connect();
  onTestFinished(() => admin.end());
  await admin.query(`alter database "${name}" rename to "${name}_away"`);
  const program = startProgram(`${IMPORTS}
    const engine = postgres('${url}');
    const queue = createQueue(engine, 'mail', { kinds: { send: {} } });
    const worker = queue.work({ send: () => console.log('sent') });
    await worker.started;
    await queue.enqueue('send', {});
    await queue.drain();
    await worker.stop();
    await engine.stop();`);
  await until('the process reports it', () => /keeps trying.*does not exist.*3D000/s.test(program.stderr()));
  await admin.query(`alter database "${name}_away" rename to "${name}"`);
  expect(await program.ended).toMatchObject({ code: 0, stdout: 'sent\n' });
});

const WAITS = {
  acquire: `locks.acquire('a', { wait: '1s' })`,
  request: `locks.request('a', { wait: '1s' }, () => {})`,
  'a semaphore': `locks.semaphore('a', { permits: 2 }).acquire({ wait: '1s' })`,
};

test.for(Object.entries(WAITS))(
  '%s that cannot reach its database fails within its wait, and keeps the process alive until then',
  async ([, call]) => {
    const { ended } = startProgram(`${IMPORTS}
      const locks = createLocks(postgres('${NOBODY}'));
      const begun = performance.now();
      try {
        await ${call};
      } catch (error) {
        console.log(JSON.stringify({ code: error.code, message: error.message, cause: String(error.cause), ms: performance.now() - begun }));
      }`);
    const { code, stdout, stderr } = await ended;
    expect(code).toBe(0);
    const { ms, ...told } = JSON.parse(stdout);
    expect(told).toEqual({
      code: 'connection_failed',
      message: expect.stringMatching(/^lock "a" could not be asked for within 1s: the database cannot be reached/),
      cause: expect.stringContaining('ECONNREFUSED'),
    });
    expect(ms).toBeGreaterThanOrEqual(1000);
    expect(stderr).toMatch(/lock: it keeps trying/);
  },
);

test('a wait for a lock without a limit reports that the database cannot be reached', async () => {
  const program = startProgram(`${IMPORTS}
    const locks = createLocks(postgres('${NOBODY}'));
    locks.on('error', ({ error }) => console.error('told', error.code));
    await locks.acquire('a');`);
  await until('the process reports it', () => /lock: it keeps trying/.test(program.stderr()));
  await until('the event is emitted', () => /told connection_failed/.test(program.stderr()));
  expect(program.isRunning()).toBe(true);
});
