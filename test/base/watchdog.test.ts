import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { until } from '../support/eventually.ts';
import { type Child, spawnChild } from '../support/process.ts';

async function start(): Promise<Child> {
  const child = spawnChild('base/watchdog.child.ts');
  await child.message();
  return child;
}

test('a process whose event loop stands still for longer than its limit is ended, and says what ran, the last first', async () => {
  const child = await start();
  child.send({ stand: 60_000 });
  expect(await child.exited).toEqual({ code: null, signal: 'SIGKILL' });
  // A process may be known to have ended before all that it wrote was read.
  await until('its last words have come', () => child.stderr().endsWith('\n'));
  expect(child.stderr()).toMatch(
    /^pawl: the event loop has stood still for \d+ ms; this process \(\d+\) ends with SIGKILL\. Running, the last first: work of 60000, a wait of 60000\n$/,
  );
});

test('a process that was stopped as a whole for longer than the limit has not stood still', async () => {
  const child = await start();
  child.pause();
  await sleep(1500);
  child.resume();
  child.send({ stand: 1 });
  expect(await child.message()).toEqual({ done: true });
});

test('no thread watches any more once all have stopped, and nothing of it keeps the process alive', async () => {
  const child = await start();
  child.send({ stop: true });
  await child.message();
  expect(await child.exited).toEqual({ code: 0, signal: null });
  const other = await start();
  other.send({ stop: true, stand: 1500 });
  expect(await other.message()).toEqual({ done: true });
});
