import { setTimeout as sleep } from 'node:timers/promises';
import { ConnectionFailed } from '../../../../src/base/errors.ts';
import type { Queue } from '../../../../src/queue/index.ts';
import { note } from '../../member/member-side.ts';
import type { Orders } from '../declaration.ts';
import type { ProducerEvent } from '../history.ts';
import type { Hand, Part } from './hand.ts';
import type { Client } from './pull.ts';

const ANSWER_MS = 3000;
/** The pause between two tries of a change that the producer must complete. */
const AGAIN_MS = 100;

/** If a silent network holds back the answer, the process is killed, as by a health check. */
export async function answered<T>(work: Promise<T>, withinMs: number = ANSWER_MS): Promise<T> {
  const silent = setTimeout(() => process.kill(process.pid, 'SIGKILL'), withinMs);
  try {
    return await work;
  } finally {
    clearTimeout(silent);
  }
}

/** Whether the outcome of a request is unknown after this error. */
export function isUnknown(error: unknown): boolean {
  return error instanceof ConnectionFailed && error.outcome === 'unknown';
}

/** Finds a job of this producer; undefined if its enqueue was not answered. */
export type Find = (n: number) => { readonly id: string; readonly orders: Orders } | undefined;

/** The changes by hand of a producer. */
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

  /** Resumes all paused parts. @param operation  the number of the operation, after those of the plan */
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
    // The enqueue of the job was not answered.
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
