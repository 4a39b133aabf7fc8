import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, describe, expect, test } from 'vitest';
import { InvalidInput } from '../../src/base/errors.ts';
import { faultPoint, faults, InjectedFault } from '../../src/base/fault.ts';
import { until } from '../support/eventually.ts';

afterEach(() => faults.clear());

describe('fault points in the process', () => {
  test('an unarmed point does nothing, and costs no promise', () => {
    expect(faults.armed).toBe(false);
    expect(faultPoint('queue.after_commit')).toBeUndefined();
  });

  test('throw fails at the armed point and at no other', async () => {
    const disarm = faults.arm('queue.after_commit', 'throw');
    await expect(faults.reach('queue.before_commit')).resolves.toBeUndefined();
    await expect(faults.reach('queue.after_commit')).rejects.toThrow(InjectedFault);
    await expect(faults.reach('queue.after_commit')).rejects.toThrow('"queue.after_commit" was reached');
    disarm();
    expect(faults.armed).toBe(false);
    await expect(faults.reach('queue.after_commit')).resolves.toBeUndefined();
  });

  test('an occurrence picks one time out of many', async () => {
    const reached: string[] = [];
    faults.arm('p', () => reached.push('second'), { occurrence: 2 });
    faults.arm('p', () => reached.push('every'));
    for (let n = 0; n < 3; n++) await faults.reach('p');
    expect(reached).toEqual(['every', 'second', 'every', 'every']);
  });

  test('hang holds until it is disarmed', async () => {
    const disarm = faults.arm('p', 'hang');
    let isPast = false;
    const reached = faults.reach('p').then(() => {
      isPast = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(isPast).toBe(false);
    disarm();
    await reached;
    expect(isPast).toBe(true);
  });

  test.each(['queue.after_commit', 'p:kil', 'p:kill#0', ':kill', 'p:kill,'])('PAWL_FAULT=%s is refused', (text) => {
    expect(() => faults.armFrom(text)).toThrow(InvalidInput);
    expect(() => faults.armFrom(text)).toThrow(/^PAWL_FAULT must hold point:action/);
  });
});

describe('fault points in a child process, armed by PAWL_FAULT', () => {
  const module = new URL('../../dist/base/fault.js', import.meta.url).href;
  const script = `
    const { faults } = await import('${module}');
    for (const n of [1, 2, 3]) {
      if (faults.armed) await faults.reach('loop.turn').catch((error) => console.log(error.name));
      console.log('past ' + n);
    }`;

  function start(fault: string): { child: ChildProcess; output: () => string; announced: Promise<void> } {
    const env = { ...process.env, PAWL_FAULT: fault };
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], { env, stdio: 'pipe' });
    let [out, err] = ['', ''];
    child.stdout.on('data', (chunk) => {
      out += chunk;
    });
    const announced = new Promise<void>((resolve) => {
      child.stderr.on('data', (chunk) => {
        err += chunk;
        if (err.includes(`PAWL_FAULT reached loop.turn:`)) resolve();
      });
    });
    return { child, output: () => out, announced };
  }

  test('kill ends the process at the named occurrence, by SIGKILL', async () => {
    const { child, output, announced } = start('other:throw,loop.turn:kill#2');
    const [code, signal] = await once(child, 'close');
    expect({ code, signal, output: output() }).toEqual({ code: null, signal: 'SIGKILL', output: 'past 1\n' });
    await announced;
  });

  test('throw throws', async () => {
    const { child, output } = start('loop.turn:throw#3');
    await once(child, 'close');
    expect(output()).toBe('past 1\npast 2\nInjectedFault\npast 3\n');
  });

  test('stop pauses the process until SIGCONT', async () => {
    const { child, output, announced } = start('loop.turn:stop#2');
    await announced;
    // The line comes just before the pause; a SIGCONT sent in between would be lost.
    const state = (): string => execFileSync('ps', ['-o', 'stat=', '-p', String(child.pid)], { encoding: 'utf8' });
    await until('it is paused', () => state().startsWith('T'));
    child.kill('SIGCONT');
    const [code] = await once(child, 'close');
    expect({ code, output: output() }).toEqual({ code: 0, output: 'past 1\npast 2\npast 3\n' });
  });

  test('hang keeps the process alive and at the point', async () => {
    const { child, output, announced } = start('loop.turn:hang#2');
    await announced;
    child.kill('SIGTERM');
    const [code, signal] = await once(child, 'close');
    expect({ code, signal, output: output() }).toEqual({ code: null, signal: 'SIGTERM', output: 'past 1\n' });
  });
});
