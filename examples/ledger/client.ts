import { DynamoDBClient } from '@aws-sdk/client-dynamodb';

/** Of DynamoDB Local, which lets everybody in. On AWS, `new DynamoDBClient({})` is enough. */
export function ledgerClient(endpoint: string): DynamoDBClient {
  const credentials = { accessKeyId: 'local', secretAccessKey: 'local' };
  return new DynamoDBClient({ endpoint, region: 'local', credentials });
}
