import { Throttled } from '../../base/errors.ts';
import { sleep } from '../../base/time/clock.ts';
import type {
  CallLimits,
  DynamoEngine,
  Item,
  Key,
  Page,
  PartialCondition,
  PartialWrite,
} from '../../engine/dynamodb/index.ts';
import type { Change, Fields } from './heads/change.ts';
import { readHead, type ShardHead } from './heads/head.ts';
import { fieldsOf, headOf, shardKey, written } from './rows.ts';

/** What became of a change. `fields`: the row after it, or the one that has refused it. */
export interface ChangeOutcome {
  readonly isDone: boolean;
  readonly fields: Fields;
}

/** How often a decision is made again on a row that others change meanwhile. */
const MOST_TRIES = 40;

/** The rows of one queue: reads, and conditional changes of those that decide. */
export class QueueRows {
  readonly engine: DynamoEngine;
  readonly queue: string;
  readonly limits: CallLimits;

  constructor(engine: DynamoEngine, queue: string, timeoutMs: number) {
    this.engine = engine;
    this.queue = queue;
    this.limits = { timeoutMs };
  }

  shard(shard: number): string {
    return shardKey(this.queue, shard);
  }

  get(key: Key): Promise<Item | undefined> {
    return this.engine.get(key, this.limits);
  }

  page(pk: string, from: string, to: string, limit: number): Promise<Page> {
    return this.engine.page(pk, from, to, limit, this.limits);
  }

  range(pk: string, from: string, to: string, limit: number): Promise<readonly Item[]> {
    return this.engine.range(pk, from, to, limit, this.limits);
  }

  async head(shard: number): Promise<ShardHead> {
    return readHead(fieldsOf(await this.get(headOf(this.shard(shard)))));
  }

  /** Carries out a change, unless its condition does not hold. */
  async change(key: Key, change: Change): Promise<ChangeOutcome> {
    const { isDone, item } = await this.engine.update(key, written(change), 'ALL_NEW', this.limits);
    return { isDone, fields: fieldsOf(item) };
  }

  /** Several changes together, or none. */
  async together(writes: readonly (PartialWrite | PartialCondition)[]): Promise<boolean> {
    return (await this.engine.transact(writes, this.limits)).isDone;
  }

  /**
   * Decides on a row, and decides again when it was changed meanwhile.
   * @param decide  undefined: there is nothing to change
   * @returns the row after the change; undefined when there was nothing to change
   */
  async decide(key: Key, decide: (fields: Fields) => Change | undefined): Promise<Fields | undefined> {
    let fields = fieldsOf(await this.get(key));
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const change = decide(fields);
      if (change === undefined) return undefined;
      const outcome = await this.change(key, change);
      if (outcome.isDone) return outcome.fields;
      fields = outcome.fields;
      await sleep(Math.random() * 5 * tries);
    }
    throw new Throttled(`the row "${key.sk}" of "${key.pk}" changes too often; try again, or declare more shards`);
  }
}
