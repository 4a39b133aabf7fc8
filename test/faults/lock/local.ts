import { setTimeout as sleep } from 'node:timers/promises';
import { givenOrLocal } from '../../../examples/ledger/local.ts';

interface Local {
  readonly endpoint: string;
  stop(): Promise<void>;
}

/** The server ends if it was not borrowed for this time, because a next schedule may follow. */
const IDLE_MS = 1000;

let started: Promise<Local> | undefined;
let borrowed = 0;

/** A DynamoDB Local for all schedules that run now. */
export async function borrowLocal(): Promise<AsyncDisposable & { readonly endpoint: string }> {
  borrowed += 1;
  started ??= start();
  const { endpoint } = await started;
  return {
    endpoint,
    [Symbol.asyncDispose]: async () => {
      borrowed -= 1;
      void endWhenIdle();
    },
  };
}

async function start(): Promise<Local> {
  const local = await givenOrLocal();
  if (typeof local === 'string') throw new Error(local);
  return local;
}

async function endWhenIdle(): Promise<void> {
  await sleep(IDLE_MS);
  if (borrowed > 0) return;
  const idle = started;
  started = undefined;
  await (await idle)?.stop();
}
