import { setTimeout as sleep } from 'node:timers/promises';
import type { DagArgs, EnqueueArgs, Kind, SendArgs } from './protocol.ts';

/** One job to enqueue, before a side converts it for its library. */
export interface Spec {
  readonly kind: Kind;
  readonly payload: { readonly n: string };
  readonly key: string | undefined;
  readonly group: string | undefined;
  readonly runAt: Date | undefined;
}

/** Twenty bytes as JSON. */
const PAYLOAD: { readonly n: string } = { n: 'abcdefghijkl' };
/** The payload of the jobs of kind `flaky` that fail in their first attempt. */
const FAILS: { readonly n: string } = { n: 'failfailfail' };
/** The attempts of a job of kind `doomed`. */
export const ATTEMPTS = 5;

/** Calls `insert` for the jobs that `args` describes, `connections` batches at a time. Returns the milliseconds taken. */
export async function enqueueAll(args: EnqueueArgs, insert: (specs: Spec[]) => Promise<unknown>): Promise<number> {
  let next = 0;
  const pump = async (): Promise<void> => {
    while (next < args.count) {
      const first = next;
      next = Math.min(args.count, next + args.batch);
      await insert(specsOf(args, first, next));
    }
  };
  const start = performance.now();
  await Promise.all(Array.from({ length: args.connections }, pump));
  return performance.now() - start;
}

function specsOf(args: EnqueueArgs, first: number, end: number): Spec[] {
  const { keys, groups, run = 1, prefix = 'k', kind = 'noop', delayMs } = args;
  const runAt = delayMs === undefined ? undefined : new Date(Date.now() + delayMs);
  const specs: Spec[] = [];
  for (let i = first; i < end; i++) {
    const key = keys === undefined ? undefined : `${prefix}${Math.floor(i / run) % keys}`;
    const group = groups === undefined ? undefined : `g${i % groups}`;
    specs.push({ kind, payload: kind === 'flaky' && i % 100 === 0 ? FAILS : PAYLOAD, key, group, runAt });
  }
  return specs;
}

/** Sends jobs one at a time; `enqueue` gets the payload to send and the key. */
export async function sendAll(
  args: SendArgs,
  enqueue: (payload: { n: string }, key: string | undefined) => Promise<unknown>,
): Promise<void> {
  const [shortest, longest] = args.gapMs;
  for (let i = 0; i < args.count; i++) {
    const key = args.prefix === undefined ? undefined : `${args.prefix}${i}`;
    await enqueue({ n: `@${process.hrtime.bigint()}` }, key);
    await sleep(shortest + Math.random() * (longest - shortest));
  }
}

/** The jobs of a graph, layer by layer. Each has its name and the names of the jobs that must end before it. */
export function dagOf({
  layers,
  width,
  after: kind,
}: DagArgs): { name: string; payload: { n: string }; after: string[] }[] {
  return Array.from({ length: layers * width }, (_, at) => {
    const [layer, nth] = [Math.floor(at / width), at % width];
    const parents = kind === 'two' ? [nth, (nth + 1) % width] : Array.from({ length: width }, (_, parent) => parent);
    const after = layer === 0 ? [] : parents.map((parent) => `${layer - 1}/${parent}`);
    return { name: `${layer}/${nth}`, payload: PAYLOAD, after };
  });
}

/** Makes `count` calls of `save` by `producers` at the same time, each with one call after another. Returns the latencies (ms). */
export async function saveAll(
  { count, producers }: { count: number; producers: number },
  save: (payload: { n: string }) => Promise<unknown>,
): Promise<number[]> {
  const ms: number[] = [];
  const produce = async (): Promise<void> => {
    for (let nth = 0; nth < count / producers; nth++) {
      const begin = performance.now();
      await save(PAYLOAD);
      ms.push(performance.now() - begin);
    }
  };
  await Promise.all(Array.from({ length: producers }, produce));
  return ms;
}

/** Counts the calls of one side's handlers. */
export class Tally {
  jobs = 0;
  units = 0;
  private latencies: number[] = [];

  /**
   * Counts one handler call, and its pick-up latency if the payload has the time at which it was sent. That time is
   * from the monotonic clock that all processes of the machine share.
   */
  count(payload: unknown, jobs = 1): void {
    this.jobs += jobs;
    this.units += 1;
    const { n } = payload as { n: string };
    if (n.startsWith('@')) this.latencies.push(Number(process.hrtime.bigint() - BigInt(n.slice(1))) / 1e6);
  }

  takeLatencies(): number[] {
    const taken = this.latencies;
    this.latencies = [];
    return taken;
  }
}

/** The handler of `doomed`. */
export function failAlways(): never {
  throw new Error('this job always fails');
}

/** The handler of `flaky`. */
export function failSometimes(payload: unknown, attempt: number): void {
  if (attempt === 1 && (payload as { n: string }).n === FAILS.n) failAlways();
}

/** Calls `isTrue` every `everyMs`, and resolves when it returns true. */
export async function until(isTrue: () => boolean | Promise<boolean>, everyMs: number): Promise<void> {
  while (!(await isTrue())) await sleep(everyMs);
}
