// A process whose event loop is watched, with a limit of half a second, and stands still when it is told to.
import { setTimeout as sleep } from 'node:timers/promises';
import { watchEventLoop } from '../../src/base/watchdog.ts';

const say = (message: object): void => console.log(JSON.stringify(message));
const stand = (ms: number): void => {
  const until = performance.now() + ms;
  while (performance.now() < until);
};
const watches = [watchEventLoop(500), watchEventLoop(3_600_000)];
const work = watches[0]?.around((ms: number) => `work of ${ms}`, stand);
const wait = watches[0]?.around(
  (ms: number) => `a wait of ${ms}`,
  (ms) => sleep(ms, undefined, { ref: ms < 1000 }),
);
void wait?.(60_000);
await wait?.(1);

process.stdin.setEncoding('utf8').on('data', (line: string) => {
  const told = JSON.parse(line) as { stand?: number; stop?: boolean };
  if (told.stop === true) for (const watch of watches) watch.stop();
  if (told.stop === true) process.stdin.unref();
  if (told.stand !== undefined) work?.(told.stand);
  say({ done: true });
});
say({ ready: true });
