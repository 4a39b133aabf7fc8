import { InvalidInput, NotFound, SerializationFailed } from '../../base/errors.ts';

/**
 * A call in the caller's own transaction, after its queues were registered. Above read committed a transaction sees the queues of the moment
 * when it began, and a queue is registered by its first use, in a commit of its own: such a transaction cannot use it, and its next try can.
 * @throws SerializationFailed  in place of the refusal of SQL, which `pawl.queue_snapshot()` has marked
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
