import { NotSupported } from '../../base/errors.ts';

const NO_INDEX = 'DynamoDB has no index of jobs by words, status or kind; name them by their ids, such as "mail/1042"';
const NO_BATCHES = 'there are no batches of jobs';
const NO_PULL = 'what a claim has taken is known to the process of its worker alone; use queue.work()';

type Refused = () => Promise<never>;

function refusing(reason: string): Refused {
  return () => Promise.reject(new NotSupported(`not on DynamoDB: ${reason}`));
}

/** The calls of those who operate queues that there are on Postgres alone: each says why. */
export class RefusedCalls {
  readonly releaseWorker: Refused = refusing(
    'a worker is released by its lease alone, since no claim is read by its worker',
  );
  readonly remove: Refused = refusing(
    'the rows of a queue are in many partitions, which no request removes together; use another name',
  );
  readonly update: Refused = refusing(
    'a job is written once, together with its neighbours: cancel it, and enqueue another one',
  );
  readonly skip: Refused = refusing("there is no keyOnError: 'block', so no job blocks its key");
  readonly redrive: Refused = refusing('there are no dead letters');
  readonly erase: Refused = refusing(
    'a job is written together with its neighbours, and goes with them when its history is over',
  );
  readonly purge: Refused = refusing(NO_INDEX);
  readonly retryAll: Refused = refusing(NO_INDEX);
  readonly move: Refused = refusing(NO_INDEX);
  readonly search: Refused = refusing(NO_INDEX);
  readonly count: Refused = refusing(NO_INDEX);
  readonly batch: Refused = refusing(NO_BATCHES);
  readonly batches: Refused = refusing(NO_BATCHES);
  readonly sealBatch: Refused = refusing(NO_BATCHES);
  readonly newBatch: Refused = refusing(NO_BATCHES);
  readonly addToBatch: Refused = refusing(NO_BATCHES);
  readonly flow: Refused = refusing('no job comes after others there');
  readonly topics: Refused = refusing(
    'a topic enqueues in several queues in one transaction, which a table of queues has not',
  );
  readonly claim: Refused = refusing(NO_PULL);
  readonly complete: Refused = refusing(NO_PULL);
  readonly fail: Refused = refusing(NO_PULL);
  readonly release: Refused = refusing(NO_PULL);
  readonly extend: Refused = refusing(NO_PULL);
}
