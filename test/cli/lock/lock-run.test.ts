import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { ProcessGroup } from '../../../src/cli/lock-run/process-group.ts';
import { postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createLocks, type Locks } from '../../../src/lock/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { cleanEnvironment, MAIN, pawl, startPawl } from '../pawl.ts';

let database: FreshDatabase;
beforeAll(async () => {
  database = await freshDatabase();
});

function open({ url } = database): { url: string; locks: Locks; expire: (name: string) => Promise<unknown> } {
  const engine = postgres(url);
  const locks = createLocks(engine);
  onTestFinished(async () => {
    await locks.stop();
    await engine.stop();
  });
  return { url, locks, expire: (name) => engine.query(EXPIRE, [name]) };
}

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), 'pawl-lock-run-'));
  onTestFinished(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

const EXPIRE = statement(
  'test.expire',
  'update pawl.lock_grant set expires_at = clock_timestamp() where name = $1 and expires_at > clock_timestamp()',
);

const sh = (script: string): string[] => ['--', 'sh', '-c', script];

test('an empty text is no command, and the lock is not taken for it', async () => {
  const { url, locks } = open();
  const said = await pawl(['lock', 'run', 'nothing', '--', ''], { url });
  expect(said).toMatchObject({ code: 2, stdout: '' });
  expect(said.stderr).toContain('the command is an empty text');
  expect(said.stderr).not.toContain('    at ');
  expect(await locks.history({ name: 'nothing' })).toEqual([]);
});

test('runs the command while holding the lock, with its name and token, and gives its exit code', async () => {
  const { url, locks } = open();
  const said = await pawl(['lock', 'run', 'code', ...sh('echo "$PAWL_LOCK_NAME $PAWL_LOCK_TOKEN"; exit 7')], { url });
  const [past] = await locks.history({ name: 'code' });
  expect(said).toMatchObject({ code: 7, stdout: `code ${past?.token}\n`, stderr: '' });
  expect(past).toMatchObject({ outcome: 'released' });
  expect(await pawl(['lock', 'run', 'code', ...sh('kill -9 $$')], { url })).toMatchObject({ code: 137 });
  expect(await pawl(['lock', 'run', 'code', '--', 'cat', '-'], { url, input: 'as it came' })).toMatchObject({
    code: 0,
    stdout: 'as it came',
  });
});

test('5 when the lock is not had in time, and the command is not run', async () => {
  const { url, locks } = open();
  const lock = await locks.acquire('taken');
  const file = join(folder(), 'ran');
  for (const wait of ['0', '300ms']) {
    const { code, stderr } = await pawl(['lock', 'run', 'taken', '--wait', wait, '--', 'touch', file], { url });
    expect({ wait, code }).toEqual({ wait, code: 5 });
    expect(stderr).toMatch(
      /lock "taken" .*held by .*\(pid \d+\).*; give a longer --wait\n[^]*next:.*pawl lock show "taken"/,
    );
    expect(stderr).not.toMatch(/tryAcquire|locks\./);
  }
  expect(existsSync(file)).toBe(false);
  const waiting = startPawl(['lock', 'run', 'taken', '--wait', '30s', '--', 'touch', file], { url });
  // The user reads why nothing happens.
  await waiting.said(/^waiting for lock "taken", held by .* \(pid \d+\)\n$/);
  await lock.release();
  expect(await waiting.ended).toMatchObject({ code: 0 });
  expect(existsSync(file)).toBe(true);
});

test('3 when the database cannot be reached, at once', async () => {
  const url = 'postgres://nobody@127.0.0.1:1/none';
  expect(await pawl(['lock', 'run', 'a', '--', 'true'], { url })).toMatchObject({ code: 3, stdout: '' });
});

test('--shared runs together with others that share, and with no other', async () => {
  const { url, locks } = open();
  await using lock = await locks.acquire('shared', { mode: 'shared' });
  expect(await pawl(['lock', 'run', 'shared', '--shared', '--wait', '0', '--', 'true'], { url })).toMatchObject({
    code: 0,
  });
  expect(await pawl(['lock', 'run', 'shared', '--wait', '0', '--', 'true'], { url })).toMatchObject({ code: 5 });
  expect(lock.isHeld).toBe(true);
});

test('a command that loses the lock is ended with all that it started, by SIGKILL where SIGTERM does not help', async () => {
  const { url, locks } = open();
  const pids = join(folder(), 'pids');
  const stubborn = `trap '' TERM; sleep 600 & echo "$$ $!" > ${pids}; while :; do sleep 1; done`;
  const running = startPawl(['lock', 'run', 'lost', '--kill-after', '500ms', ...sh(stubborn)], { url });
  await until('it runs', () => existsSync(pids) && readFileSync(pids, 'utf8').endsWith('\n'));
  await locks.break('lost', { reason: 'the test says so' });
  const { code, stderr } = await running.ended;
  expect(code).toBe(1);
  expect(stderr).toMatch(/ended: .*broken: the test says so[^]*did not have the lock until its end/);
  for (const pid of readFileSync(pids, 'utf8').trim().split(' ').map(Number)) {
    await until(`process ${pid} is gone`, () => isGone(pid));
  }
});

test('a command that loses the lock may clean up, and the exit code says so, although no process reads the messages', async () => {
  const { url, locks } = open();
  const at = folder();
  const ready = join(at, 'ready');
  const clean = join(at, 'clean');
  const script = `exec 2> /dev/null; trap 'echo yes > ${clean}; exit 0' TERM; touch ${ready}; while :; do sleep 0.1; done`;
  const child = spawn(process.execPath, [MAIN, 'lock', 'run', 'unheard', ...sh(script)], {
    env: cleanEnvironment({ url }),
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  child.stderr.destroy();
  await until('it runs', () => existsSync(ready));
  await locks.break('unheard', { reason: 'the test says so' });
  const [code] = await once(child, 'exit');
  expect([code, existsSync(clean)]).toEqual([1, true]);
});

test('a signal is passed on: the command ends in its own way, and the lock is released after it', async () => {
  const { url, locks } = open();
  const ready = join(folder(), 'ready');
  const running = startPawl(
    ['lock', 'run', 'asked', ...sh(`trap 'exit 9' TERM; touch ${ready}; while :; do sleep 0.1; done`)],
    {
      url,
    },
  );
  await until('it runs', () => existsSync(ready));
  running.signal('SIGTERM');
  expect(await running.ended).toMatchObject({ code: 9 });
  expect(await locks.tryAcquire('asked')).toBeDefined();
});

test.each(['SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGHUP', 'SIGALRM'] as const)(
  '%s is for the command to decide, and the lock is kept as long as the command lives',
  async (signal) => {
    const { url, locks } = open();
    const at = folder();
    const [ready, got] = [join(at, 'ready'), join(at, 'got')];
    const name = signal.slice(3);
    const script = `trap 'touch ${got}' ${name}; touch ${ready}; until [ -e ${at}/end ]; do sleep 0.05; done; exit 9`;
    const running = startPawl(['lock', 'run', signal, ...sh(script)], { url });
    await until('it runs', () => existsSync(ready));
    running.signal(signal);
    await until('the command has the signal', () => existsSync(got));
    expect(await locks.tryAcquire(signal)).toBeUndefined();
    writeFileSync(join(at, 'end'), '');
    expect(await running.ended).toMatchObject({ code: 9 });
    expect(await locks.tryAcquire(signal)).toBeDefined();
  },
);

describe.runIf(process.platform === 'linux')('a command that is stopped by Ctrl-Z', () => {
  const stateOf = (pid: number): string =>
    /^State:\s+(\S)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '';
  const isStopped = (pid: number): boolean => stateOf(pid) === 'T';
  const counts = (at: string): string[] =>
    sh(`echo $$ > ${at}/pids; while :; do echo more >> ${at}/count; sleep 0.02; done`);
  const lines = (at: string): number => readFileSync(join(at, 'count'), 'utf8').length;

  test('stands still with pawl, and goes on with it while the lock is held', async () => {
    const { url, locks } = open();
    const at = folder();
    const running = startPawl(['lock', 'run', 'paused', '--lease', '10m', ...counts(at)], { url });
    const [shell = 0] = await pidsIn(join(at, 'pids'));
    await until('it counts', () => existsSync(join(at, 'count')));
    running.signal('SIGTSTP');
    await until('both stand still', () => isStopped(running.pid) && isStopped(shell));
    const counted = lines(at);
    running.signal('SIGCONT');
    await until('it counts on', () => lines(at) > counted);
    expect(await locks.tryAcquire('paused')).toBeUndefined();
    running.signal('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 143 });
  });

  test('does not go on when the lock was lost meanwhile', async () => {
    const { url, locks } = open();
    const at = folder();
    const running = startPawl(['lock', 'run', 'overslept', '--lease', '2s', ...counts(at)], { url });
    const [shell = 0] = await pidsIn(join(at, 'pids'));
    await until('it counts', () => existsSync(join(at, 'count')));
    running.signal('SIGTSTP');
    await until('both stand still', () => isStopped(running.pid) && isStopped(shell));
    await locks.acquire('overslept', { wait: '50s' });
    const counted = lines(at);
    running.signal('SIGCONT');
    const { code, stderr } = await running.ended;
    expect([code, lines(at)]).toEqual([1, counted]);
    expect(stderr).toContain('did not have the lock until its end');
  });
});

test('a second signal ends both at once, and leaves no command without a lock', async () => {
  const { url, locks, expire } = open();
  const pids = join(folder(), 'pids');
  const running = startPawl(['lock', 'run', 'twice', ...sh(`trap '' INT TERM; echo $$ > ${pids}; sleep 600`)], { url });
  await until('it runs', () => existsSync(pids) && readFileSync(pids, 'utf8').endsWith('\n'));
  running.signal('SIGINT');
  // Signals of one kind that come at once are one.
  running.signal('SIGTERM');
  expect((await running.ended).code).toBeGreaterThanOrEqual(130);
  await until('the command is gone', () => isGone(Number(readFileSync(pids, 'utf8'))));
  // No process prolongs its lease.
  await expire('twice');
  await locks.acquire('twice', { wait: '30s' });
});

/** A script that dies of SIGTERM at once, while the program that it runs goes on. Writes both pids. */
const script = (pids: string, program: string): string[] =>
  sh(`sh -c '${program} echo "$PPID $$" > ${pids}; while :; do sleep 0.05; done'; echo never`);

const pidsIn = (file: string): Promise<number[]> =>
  until('it runs', () => {
    const text = existsSync(file) ? readFileSync(file, 'utf8') : '';
    return text.endsWith('\n') ? text.trim().split(' ').map(Number) : undefined;
  });

test('the lock is kept until the program of a script that died of the signal has cleaned up', async () => {
  const { url, locks } = open();
  const [pids, cleaned] = [join(folder(), 'pids'), join(folder(), 'cleaned')];
  const program = `trap "sleep 1; touch ${cleaned}; exit 0" TERM;`;
  const running = startPawl(['lock', 'run', 'script', ...script(pids, program)], { url });
  await pidsIn(pids);
  const next = locks.acquire('script', { wait: '50s' });
  running.signal('SIGTERM');
  await next;
  expect(existsSync(cleaned)).toBe(true);
  expect(await running.ended).toMatchObject({ code: 143 });
});

test('what a command leaves behind is ended before the lock is free, by SIGKILL where SIGTERM does not help', async () => {
  const { url, locks } = open();
  const pids = join(folder(), 'pids');
  const leaves = `trap '' TERM; sleep 600 & trap - TERM; sleep 600 & echo "$$ $!" > ${pids}; exit 4`;
  const running = startPawl(['lock', 'run', 'daemon', '--kill-after', '300ms', ...sh(leaves)], { url });
  const [, ...left] = await pidsIn(pids);
  await locks.acquire('daemon', { wait: '50s' });
  expect(left.map(isGone)).toEqual([true]);
  expect(await running.ended).toMatchObject({ code: 4, stderr: '' });
});

test('a second signal also kills what a command that has ended left behind', async () => {
  const { url, locks } = open();
  const pids = join(folder(), 'pids');
  const running = startPawl(['lock', 'run', 'stays', '--kill-after', '10m', ...script(pids, 'trap "" TERM INT;')], {
    url,
  });
  const [shell = 0, program = 0] = await pidsIn(pids);
  running.signal('SIGTERM');
  await until('the script is gone', () => isGone(shell));
  expect(isGone(program)).toBe(false);
  expect(await locks.tryAcquire('stays')).toBeUndefined();
  running.signal('SIGINT');
  expect((await running.ended).code).toBeGreaterThanOrEqual(130);
  await until('the program is gone', () => isGone(program));
});

test('a holder hears at once that its lock was broken, long before its next renewal', async () => {
  // Of its own: a session of another test may listen, too, or be on its way to its end.
  const { url, locks } = open(await freshDatabase());
  const pids = join(folder(), 'pids');
  const running = startPawl(['lock', 'run', 'heard', '--lease', '1h', ...sh(`echo $$ > ${pids}; exec sleep 600`)], {
    url,
  });
  await pidsIn(pids);
  await until('it listens', async () => {
    await using engine = postgres(url);
    const text =
      "select 1 from pg_stat_activity where datname = current_database() and query ~* '^((un)?listen|-- engine.listen_)' and state = 'idle'";
    return (await engine.query(statement('test.listens', text))).length > 0;
  });
  await locks.break('heard', { reason: 'the test says so' });
  expect((await running.ended).stderr).toMatch(/broken: the test says so/);
});

test.runIf(process.platform === 'linux' && existsSync('/bin/bash'))(
  'who has ended, but was not collected, works no more',
  async () => {
    // With -m a job has a group of its own; the process that takes the place of the shell does not collect it.
    const parent = spawn('/bin/bash', ['-c', 'set -m; sleep 600 & echo $!; exec sleep 600'], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    onTestFinished(() => void parent.kill('SIGKILL'));
    const [line] = await once(parent.stdout.setEncoding('utf8'), 'data');
    const group = new ProcessGroup(Number(line));
    expect(group.isGone).toBe(false);
    expect(await group.gone(20)).toBe(false);
    group.send('SIGKILL');
    expect(await group.gone(50_000)).toBe(true);
    expect(group.send('SIGTERM')).toBe(true);
  },
);

test('a signal while it waits ends the waiting and leaves no place in the queue', async () => {
  const { url, locks } = open();
  await using lock = await locks.acquire('waits');
  const running = startPawl(['lock', 'run', 'waits', '--', 'true'], { url });
  await until('it waits', async () => (await locks.query()).waiting.some(({ name }) => name === 'waits'));
  running.signal('SIGTERM');
  expect(await running.ended).toMatchObject({ code: 143 });
  expect((await locks.query()).waiting.filter(({ name }) => name === 'waits')).toEqual([]);
  expect(lock.isHeld).toBe(true);
});

test('what cannot be run, or is no right call, is said, and holds nothing', async () => {
  const { url, locks } = open();
  const run = (...args: string[]) => pawl(['lock', 'run', ...args], { url });
  expect(await run('none', '--', 'no-such-command')).toMatchObject({
    code: 127,
    stderr: expect.stringMatching(/next:/),
  });
  expect(await run('none', '--', '/')).toMatchObject({ code: 126 });
  expect(await run('none')).toMatchObject({ code: 2 });
  expect(await run('none', '--lease', '50ms', '--', 'true')).toMatchObject({ code: 2 });
  expect(await run('none', '--wait', 'soon', '--', 'true')).toMatchObject({ code: 2 });
  expect(await run('none', '--read-only', '--', 'true')).toMatchObject({ code: 2 });
  expect(await run('none', '--dry-run', '--', 'false')).toMatchObject({ code: 0 });
  expect((await locks.query()).held.filter(({ name }) => name === 'none')).toEqual([]);
});

function isGone(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return true;
  }
  // A child of init's that is not collected yet counts as gone.
  const status = `/proc/${pid}/status`;
  return existsSync(status) && /^State:\s+Z/m.test(readFileSync(status, 'utf8'));
}
