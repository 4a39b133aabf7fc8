import { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { startLocal } from '../../examples/ledger/local.ts';

/** Enough that DynamoDB Local never lacks memory. */
const MEMORY_MB = 1024;

/** Amazon's DynamoDB Local, in memory. The tests use it too. It needs Java 17. */
export class LocalDynamo implements AsyncDisposable {
  readonly endpoint: string;
  /** The version of its jar file: a date. */
  readonly version: string;
  private readonly end: () => Promise<void>;

  private constructor(endpoint: string, version: string, end: () => Promise<void>) {
    this.endpoint = endpoint;
    this.version = version;
    this.end = end;
  }

  static async start(): Promise<LocalDynamo> {
    const local = await startLocal({ memoryMb: MEMORY_MB, isForLong: true });
    if (typeof local === 'string') throw new Error(local);
    return new LocalDynamo(local.endpoint, local.version, () => local.stop());
  }

  /** A new client with its own connections. */
  client(): DynamoDBClient {
    const credentials = { accessKeyId: 'bench', secretAccessKey: 'bench' };
    return new DynamoDBClient({ endpoint: this.endpoint, region: 'local', credentials });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.end();
  }
}
