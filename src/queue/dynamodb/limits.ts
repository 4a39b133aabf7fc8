/** The features that a queue on DynamoDB refuses, with the reasons. */
import { NotSupported } from '../../base/errors.ts';
import type { Definition } from '../definition.ts';

/** The largest payload and result of a job. A row has at most 400 KB. */
const MOST_BYTES = 300_000;

/** The definition, with bounds for payloads and results that fit into a row. @throws NotSupported */
export function withinRows(definition: Definition): Definition {
  if (definition.blocksKeys) {
    throw new NotSupported(
      "DynamoDB does not support keyOnError: 'block': the head of a key names only the next job there, and no job that has ended; retry from the handler, or keep the queue on Postgres",
    );
  }
  if (definition.perGroup !== undefined) {
    throw new NotSupported(
      'DynamoDB does not support concurrency.perGroup: a claim takes jobs in their order without reading them, and the end of a job changes no row that would count its group; hold a lock in the handler, or keep the queue on Postgres',
    );
  }
  if (definition.rate !== undefined) {
    throw new NotSupported(
      'DynamoDB does not support rate.perGroup: a claim takes jobs in their order without reading them, so it cannot leave those of one group; ask a limiter in the handler and throw retryAfter, or keep the queue on Postgres',
    );
  }
  const kinds = new Map(
    [...definition.kinds].map(([name, kind]) => {
      if (kind.unique?.replace === true) {
        throw refused(
          name,
          'unique with replace',
          'a duplicate changes nothing; change the job that waits by update()',
        );
      }
      if (kind.after.length > 0)
        throw refused(
          name,
          'after',
          'a claim does not read jobs of other kinds; name the jobs themselves, by after of enqueue()',
        );
      return [name, { ...kind, maxBytes: Math.min(kind.maxBytes, MOST_BYTES) }];
    }),
  );
  return { ...definition, kinds };
}

function refused(kind: string, what: string, why: string): NotSupported {
  return new NotSupported(`kind "${kind}" has ${what}, which queues on DynamoDB do not have: ${why}`);
}

/** @throws NotSupported */
export function refusePart(part: unknown): void {
  if (part === undefined) return;
  throw new NotSupported(
    'not on DynamoDB: a queue is paused as a whole, since a claim takes jobs without reading them',
  );
}

/** @throws NotSupported */
export function notInParts(): Promise<never> {
  return Promise.reject(
    new NotSupported('enqueueItems on DynamoDB takes no unique kinds and no after; enqueue() takes unique'),
  );
}
