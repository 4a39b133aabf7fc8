import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Context } from './harness/context.ts';
import { percentile } from './harness/figures.ts';

const TIMES = 10;

/** The slowest payloads of a megabyte: with many names, with many small objects, and with many small objects that each have a hidden key. */
const PAYLOADS: Readonly<Record<string, () => unknown>> = {
  '60,000 properties': () => Object.fromEntries(Array.from({ length: 60_000 }, (_, n) => [`name-${n}`, n])),
  '90,000 objects': () => Array.from({ length: 90_000 }, (_, n) => ({ a: n % 10 })),
  '55,000 hidden values': () => Array.from({ length: 55_000 }, () => ({ secret: 1 })),
};
const RULES: Readonly<Record<string, object>> = {
  'as it is': {},
  'keys hidden': { keys: ['secret', 'password'] },
  'by a rule of its own': { payload: (payload: unknown) => payload },
};

interface Queue {
  enqueue(kind: string, payload: unknown): Promise<{ readonly id: string }>;
}

/**
 * How long the event loop is blocked while the server shows a job with such a payload. A server that hides nothing must also parse and
 * write the megabyte. Its figure is the one to compare with.
 */
export async function measureRedaction(
  { say }: Context,
  queue: Queue,
  open: (redact: object) => { readonly ask: (path: string) => Promise<Response>; readonly stop: () => Promise<void> },
): Promise<Record<string, number[]>> {
  const all: Record<string, number[]> = {};
  for (const [what, make] of Object.entries(PAYLOADS)) {
    const { id } = await queue.enqueue('send', make());
    for (const [rule, redact] of Object.entries(RULES)) {
      const { ask, stop } = open(redact);
      const held = await worstHolds(() => ask(`jobs/${id}`));
      await stop();
      all[`${what}, ${rule}`] = held;
      say(
        `1 MB of ${what}, ${rule}: the loop is held for ${percentile(held, 50).toFixed(1)} ms, most ${Math.max(...held).toFixed(1)} ms`,
      );
    }
  }
  return all;
}

async function worstHolds(look: () => Promise<Response>): Promise<number[]> {
  const held: number[] = [];
  for (let n = 0; n < TIMES; n += 1) {
    const delay = monitorEventLoopDelay({ resolution: 1 });
    delay.enable();
    const response = await look();
    await response.text();
    delay.disable();
    if (!response.ok) throw new Error(`a job of a megabyte: ${response.status}`);
    held.push(delay.max / 1e6);
  }
  return held;
}
