import { NotFound } from '../../base/errors.ts';
import {
  type Change,
  type DynamoEngine,
  type Fields,
  fieldsOf,
  type Key,
  TableRows,
} from '../../engine/dynamodb/index.ts';
import { readHead, type ShardHead } from './heads/head.ts';
import { headOf, shardKey } from './rows.ts';

/** The rows of one queue: reads, and conditional changes of the rows that decide. */
export class QueueRows extends TableRows<DynamoEngine> {
  readonly queue: string;

  constructor(engine: DynamoEngine, queue: string, timeoutMs: number) {
    super(engine, timeoutMs);
    this.queue = queue;
  }

  shard(shard: number): string {
    return shardKey(this.queue, shard);
  }

  async head(shard: number): Promise<ShardHead> {
    return readHead(fieldsOf(await this.get(headOf(this.shard(shard)))));
  }

  override decide(key: Key, decide: (fields: Fields) => Change | undefined): Promise<Fields | undefined> {
    return super.decide(key, decide, 'try again, or declare more shards');
  }
}

/** For `catch`: a missing job or batch has ended, and its history is over. */
export function unlessMissing(error: unknown): undefined {
  if (error instanceof NotFound) return undefined;
  throw error;
}
