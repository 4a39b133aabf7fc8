import { InvalidInput, NotFound, SerializationFailed } from '../../base/errors.ts';

/**
 * Wraps a call in the caller's own transaction. A transaction above read committed sees the queues of the moment when it began.
 * The first use of a queue registers it, in a commit of its own. So such a transaction cannot use the queue, but its next try
 * can.
 * @throws SerializationFailed  instead of SQL's refusal, which `pawl.queue_snapshot()` has marked
 */
export function inSnapshot<T>(tx: unknown, call: Promise<T>): Promise<T> {
  return tx === undefined ? call : call.catch(asUnseen);
}

function asUnseen(error: unknown): never {
  const isRefusal = error instanceof NotFound || error instanceof InvalidInput;
  if (!isRefusal || !error.message.includes(' in the snapshot of this transaction')) throw error;
  throw new SerializationFailed(
    'the transaction began before a queue or kind that it uses was registered; run it again, or await queue.register() when the program ' +
      `starts: ${error.message}`,
    { cause: error },
  );
}
