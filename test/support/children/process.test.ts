import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { spawnChild } from '../process.ts';

const script = 'support/children/counter.child.ts';

test('a child runs TypeScript, with arguments and environment, and answers', async () => {
  const child = spawnChild(script, ['now'], { COLOR: 'red' });
  expect(await child.message()).toEqual({ ready: 'now', color: 'red' });
  child.send({});
  expect(await child.message()).toEqual({ count: expect.any(Number) });
});

test('a killed child ends by the signal', async () => {
  const child = spawnChild(script);
  await child.message();
  expect(await child.kill()).toEqual({ code: null, signal: 'SIGKILL' });
  expect(await child.exited).toEqual({ code: null, signal: 'SIGKILL' });
});

test('a paused child stands still until it is resumed', async () => {
  const child = spawnChild(script);
  await child.message();
  child.pause();
  child.send({});
  const answer = child.message();
  expect(await Promise.race([answer, sleep(300, 'silence')])).toBe('silence');
  child.resume();
  expect(await answer).toEqual({ count: expect.any(Number) });
});

test('waiting for a message of a child that fails shows its error', async () => {
  const child = spawnChild(script);
  await child.message();
  child.send({ fail: 'out of paper' });
  await expect(child.message()).rejects.toThrow(/ended without a message.*out of paper/s);
});
