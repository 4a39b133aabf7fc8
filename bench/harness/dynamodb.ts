import { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { startLocal } from '../../examples/ledger/local.ts';

/** Enough for it never to be short of it. */
const MEMORY_MB = 1024;

/** Amazon's DynamoDB Local, in memory: what the tests use, too. It needs Java 17. */
export class LocalDynamo implements AsyncDisposable {
  readonly endpoint: string;
  /** Of its jar: a date. */
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

  /** A client of one's own, with connections of its own. */
  client(): DynamoDBClient {
    const credentials = { accessKeyId: 'bench', secretAccessKey: 'bench' };
    return new DynamoDBClient({ endpoint: this.endpoint, region: 'local', credentials });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.end();
  }
}
