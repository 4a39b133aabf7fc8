import type { Talk } from './reporter.ts';

/** Shows the progress of a task. */
export interface Progress extends Disposable {
  /** Notes how much is done; cheap enough to be called for every item. */
  at(done: number): void;
  /** Removes the bar. Safe to call twice. */
  stop(): void;
}

const REDRAW_MS = 100;
const PLAIN_MS = 10_000;
const BAR = 24;

/**
 * Shows a bar on the last line of a terminal; elsewhere writes a plain line every 10 s, so that a log shows that the work goes
 * on.
 */
export function startProgress(talk: Talk, what: string, total: number): Progress {
  const startedAt = performance.now();
  let done = 0;
  const draw = (): void => {
    const line = progressLine(what, done, total, performance.now() - startedAt);
    if (talk.isTerminal) process.stderr.write(`\r\u001b[2K${line}`);
    else talk.say(line);
  };
  const timer = setInterval(draw, talk.isTerminal ? REDRAW_MS : PLAIN_MS);
  timer.unref();
  let running = true;
  const stop = (): void => {
    if (!running) return;
    running = false;
    clearInterval(timer);
    if (talk.isTerminal) process.stderr.write('\r\u001b[2K');
  };
  return {
    at: (now) => {
      done = now;
    },
    stop,
    [Symbol.dispose]: stop,
  };
}

/** `drain  [=====     ]  42 %  4200/10000  31000/s`. */
export function progressLine(what: string, done: number, total: number, elapsedMs: number): string {
  const share = total > 0 ? Math.min(1, done / total) : 1;
  const bar = '='.repeat(Math.round(share * BAR)).padEnd(BAR);
  const rate = elapsedMs > 0 ? Math.round((done * 1000) / elapsedMs) : 0;
  return `${what}  [${bar}]  ${Math.floor(share * 100)} %  ${done}/${total}  ${rate}/s`;
}
