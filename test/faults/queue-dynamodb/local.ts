import { sharedDynamo } from '../../support/dynamodb.ts';
import type { Runner } from '../part.ts';
import { queueOnDynamo } from './part.ts';

/** The part for tests. `isMissing` says why it cannot run here. */
export const QUEUE_ON_DYNAMO: { readonly part: Runner; readonly isMissing: () => Promise<string | undefined> } = {
  part: queueOnDynamo(async () => (await sharedDynamo()).endpoint),
  isMissing: async () =>
    (await sharedDynamo()).kind === 'dynalite' ? 'a queue needs transactions, which dynalite has not' : undefined,
};
