import { NotSupported } from '../../base/errors.ts';

const NO_INDEX = 'DynamoDB has no index of jobs by words, status or kind; name them by their ids, such as "mail:1042"';
const NO_PULL = "only the worker's own process knows the jobs of its claim; use queue.work()";

type Refusal = () => Promise<never>;

function refusing(reason: string): Refusal {
  return () => Promise.reject(new NotSupported(`not on DynamoDB: ${reason}`));
}

/** Calls of operators that only Postgres supports. Each refuses with its reason. */
export class RefusedCalls {
  readonly releaseWorker: Refusal = refusing(
    'a worker is released by its lease alone, since no claim is read by its worker',
  );
  readonly remove: Refusal = refusing(
    'the rows of a queue are in many partitions, which no request removes together; use another name',
  );
  readonly finish: Refusal = refusing('only the worker that runs a job writes its outcome');
  readonly skip: Refusal = refusing("there is no keyOnError: 'block', so no job blocks its key");
  readonly erase: Refusal = refusing(
    'a job is written together with its neighbours, and goes with them when its history is over',
  );
  readonly purge: Refusal = refusing(NO_INDEX);
  readonly retryAll: Refusal = refusing(NO_INDEX);
  readonly cancelAll: Refusal = refusing(NO_INDEX);
  readonly move: Refusal = refusing(NO_INDEX);
  readonly count: Refusal = refusing(NO_INDEX);
  readonly topics: Refusal = refusing(
    'a topic enqueues in several queues in one transaction, which a table of queues has not',
  );
  readonly claim: Refusal = refusing(NO_PULL);
  readonly complete: Refusal = refusing(NO_PULL);
  readonly fail: Refusal = refusing(NO_PULL);
  readonly release: Refusal = refusing(NO_PULL);
  readonly extend: Refusal = refusing(NO_PULL);
}
