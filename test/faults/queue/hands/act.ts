import { setTimeout as sleep } from 'node:timers/promises';
import { ConnectionFailed } from '../../../../src/base/errors.ts';
import type { Queue } from '../../../../src/queue/index.ts';
import { note } from '../../member/member-side.ts';
import type { Orders } from '../declaration.ts';
import type { ProducerEvent } from '../history.ts';
import type { Hand, Part } from './hand.ts';
import type { Client } from './pull.ts';

const ANSWER_MS = 3000;
/** Between two tries at what has to be done before the producer is done. */
const AGAIN_MS = 100;

/** What a silent network keeps from being answered ends with the process, as a health check would end it. */
export async function answered<T>(work: Promise<T>, withinMs: number = ANSWER_MS): Promise<T> {
  const silent = setTimeout(() => process.kill(process.pid, 'SIGKILL'), withinMs);
  try {
    return await work;
  } finally {
    clearTimeout(silent);
  }
}

/** Whether an error leaves it open what has become of a request. */
export function isUnknown(error: unknown): boolean {
  return error instanceof ConnectionFailed && error.outcome === 'unknown';
}

/** A job that this producer has enqueued, as far as it has been told. */
export type Find = (n: number) => { readonly id: string; readonly orders: Orders } | undefined;

/** What a producer does by hand. */
export class Hands {
  readonly #queue: Queue;
  readonly #client: Client;
  readonly #find: Find;

  constructor(queue: Queue, client: Client, find: Find) {
    this.#queue = queue;
    this.#client = client;
    this.#find = find;
  }

  async carryOut(operation: number, hand: Hand): Promise<void> {
    const job = 'n' in hand ? this.#find(hand.n) : undefined;
    note<ProducerEvent>({ do: 'hand', operation, hand, id: job?.id });
    try {
      await this.#carryOut(hand, job);
      note<ProducerEvent>({ do: 'handed', operation });
    } catch (error) {
      note<ProducerEvent>({ do: 'failed', operation, error: String(error), isUnknown: isUnknown(error) });
    }
  }

  /** Whatever was paused goes on. @param operation  behind those of the plan */
  async resumeAll(parts: readonly Part[], operation: number): Promise<void> {
    for (const part of parts) {
      note<ProducerEvent>({ do: 'hand', operation, hand: { do: 'resume', part } });
      for (;;) {
        const isDone = await answered(this.#queue.resume(part)).then(
          () => true,
          () => false,
        );
        if (isDone) break;
        await sleep(AGAIN_MS);
      }
    }
  }

  async #carryOut(hand: Hand, job: ReturnType<Find>): Promise<void> {
    if (hand.do === 'pull') return this.#client.pull(hand);
    if (hand.do === 'pause') return answered(this.#queue.pause(hand.part));
    if (hand.do === 'resume') return answered(this.#queue.resume(hand.part));
    if (hand.do === 'cancelAll') return void (await answered(this.#queue.cancelAll(`tag:${hand.tag}`)));
    // Its enqueue was not answered.
    if (job === undefined) throw new Error('there is no such job');
    const { id, orders } = job;
    if (hand.do === 'update') {
      const delay = hand.delayMs === null ? {} : { delay: hand.delayMs };
      await answered(this.#queue.update(id, { payload: { ...orders, version: hand.version }, ...delay }));
    } else if (hand.do === 'retry') await answered(this.#queue.retry(id));
    else if (hand.do === 'cancel') await answered(this.#queue.cancel(id));
    else if (hand.do === 'finish') await answered(this.#queue.finish(id, { result: 'by hand' }));
    else await answered(this.#queue.erase(id));
  }
}
