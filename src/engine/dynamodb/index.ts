/** The DynamoDB engine: `dynamodb(new DynamoDBClient({}), { table: 'pawl' })`. */
import { randomUUID } from 'node:crypto';
import { InvalidInput } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { checkOptions, duration, logger, optional, text } from '../../base/options/options.ts';
import { isObject } from '../../base/options/shape.ts';
import type { Duration } from '../../base/time/duration.ts';
import { ConditionRefusal, RequestSender } from './call.ts';
import type {
  Attribute,
  CallLimits,
  DynamoClient,
  Item,
  Key,
  Page,
  PartialCondition,
  PartialWrite,
  RequestTexts,
  WriteOutcome,
} from './client.ts';
import { isTransient } from './failure.ts';
import { ServiceClock } from './service-clock.ts';
import { createTable, isTableThere, type TableReport, templateOf } from './table.ts';

export { applied, both, type Change, type Fields, isApplied } from './change.ts';
export {
  type Attribute,
  type CallLimits,
  type DynamoClient,
  type Item,
  type Key,
  num,
  type Page,
  type PartialCondition,
  type PartialWrite,
  type RequestTexts,
  readBig,
  readList,
  readMap,
  readNumber,
  readText,
  text,
  type WriteOutcome,
} from './client.ts';
export { Expression } from './expression.ts';
export { attribute, creation, digits, fieldsOf, written } from './fields.ts';
export { Liveness, workerOf } from './liveness.ts';
export { type ChangeOutcome, TableRows } from './rows.ts';
export { type TableReport, TTL } from './table.ts';

/** The options of {@link dynamodb}. */
export interface DynamoOptions {
  /** The name of the table. The table belongs to Pawl: store nothing else in it. */
  readonly table: string;
  /**
   * The largest difference between the clocks of your machines and the clock of DynamoDB, if you know it. A process can then take
   * the lock of a dead holder at once, even if it has not watched the holder for a lease. Default: clocks are never compared.
   */
  readonly clockSkew?: Duration | undefined;
  /** Any pino-shaped logger. Default: warnings and errors go to stderr. */
  readonly logger?: Logger | undefined;
}

/** A part of your own `TransactWriteItems`. */
export interface ConditionCheckItem {
  readonly ConditionCheck: {
    TableName: string;
    Key: Record<string, { S: string }>;
    ConditionExpression: string;
    ExpressionAttributeNames?: Record<string, string> | undefined;
    ExpressionAttributeValues?: Record<string, { S: string }> | undefined;
  };
}

/**
 * Makes an engine on your client. Sends nothing before its first use. The client stays yours: Pawl never ends it.
 * @throws InvalidInput
 */
export function dynamodb(client: DynamoClient, options: DynamoOptions): DynamoEngine {
  const isClient: boolean = isObject(client) && typeof Reflect.get(client, 'send') === 'function';
  if (!isClient) {
    throw new InvalidInput(
      'dynamodb() takes a DynamoDBClient of @aws-sdk/client-dynamodb: dynamodb(client, { table })',
    );
  }
  const checked = checkOptions('dynamodb', options, {
    table: text({ min: 3, max: 255, pattern: [/^[\w.-]+$/, 'a name of letters, digits, "_", "-" and "."'] }),
    clockSkew: optional(duration({ max: '1h' })),
    logger: logger(),
  });
  return new DynamoEngine(client, checked);
}

interface Settings {
  readonly table: string;
  readonly clockSkew: number | undefined;
  readonly logger: Logger;
}

/** The engine that {@link dynamodb} makes. */
export class DynamoEngine {
  readonly kind = 'dynamodb';
  readonly table: string;
  /** @internal */
  readonly clockSkewMs: number | undefined;
  /** @internal */
  readonly logger: Logger;
  readonly #clock = new ServiceClock();
  readonly #caller: RequestSender;

  /** @internal */
  constructor(client: DynamoClient, { table, clockSkew, logger }: Settings) {
    this.table = table;
    this.clockSkewMs = clockSkew;
    this.logger = logger;
    this.#caller = new RequestSender(client, table, this.#clock);
  }

  /** Creates the table unless it exists. Safe to call from many processes at once. */
  migrate(): Promise<TableReport> {
    return createTable(this.#caller, this.table);
  }

  /** Whether the table exists. @throws SchemaMismatch  if it is not Pawl's */
  isMigrated(): Promise<boolean> {
    return isTableThere(this.#caller, this.table);
  }

  /** The table as a template in JSON, instead of `migrate()`. */
  template(kind: 'cloudformation' | 'terraform'): Readonly<Record<string, unknown>> {
    return templateOf(this.table, kind);
  }

  /** True if a later call may succeed without a correction by a person. */
  isTransient(error: unknown): boolean {
    return isTransient(error);
  }

  /** Milliseconds since 1970 by the service's clock, from its answers; sends a request if there was no answer yet. @internal */
  async serviceTime(limits: CallLimits): Promise<number> {
    if (!this.#clock.isSet) await this.get({ pk: 'clock', sk: 'clock' }, limits);
    return this.#clock.now();
  }

  /** The same time, as exact as this process knows it; sends nothing. @internal */
  now(): number {
    return this.#clock.now();
  }

  /** The row after all writes that were answered before this call. One read unit for 4 KB. @internal */
  async get(key: Key, limits: CallLimits): Promise<Item | undefined> {
    const input = { TableName: this.table, Key: keyOf(key), ConsistentRead: true };
    const { output } = await this.#caller.send('GetItem', input, limits);
    return itemIn(output, 'Item');
  }

  /** Changes a row, or creates it. @param returns  the part of the row to return @internal */
  async update(
    key: Key,
    written: RequestTexts,
    returns: 'ALL_NEW' | 'UPDATED_OLD' | 'NONE',
    limits: CallLimits,
  ): Promise<WriteOutcome> {
    const input = { TableName: this.table, Key: keyOf(key), ...written, ReturnValues: returns, ...TELL };
    try {
      const { output, isRepeated } = await this.#caller.send('UpdateItem', input, limits);
      return { isDone: true, item: itemIn(output, 'Attributes'), isRepeated };
    } catch (error) {
      return refusedOr(error);
    }
  }

  /** Removes a row if the condition holds; a missing row is no failure. @internal */
  async remove(key: Key, written: RequestTexts, limits: CallLimits): Promise<WriteOutcome> {
    try {
      const { isRepeated } = await this.#caller.send(
        'DeleteItem',
        { TableName: this.table, Key: keyOf(key), ...written },
        limits,
      );
      return { isDone: true, item: undefined, isRepeated };
    } catch (error) {
      return refusedOr(error);
    }
  }

  /** Carries out all of the writes or none, at twice the price. @internal */
  async transact(writes: readonly (PartialWrite | PartialCondition)[], limits: CallLimits): Promise<WriteOutcome> {
    const items = writes.map((write) => {
      const place = { TableName: this.table, Key: keyOf(write.key) };
      if ('written' in write) return { Update: { ...place, ...write.written } };
      return 'removed' in write
        ? { Delete: { ...place, ...write.removed } }
        : { ConditionCheck: { ...place, ...write.checked } };
    });
    try {
      // One token for all tries, so that the service recognises a repetition.
      const input = { TransactItems: items, ClientRequestToken: randomUUID() };
      const { isRepeated } = await this.#caller.send('TransactWriteItems', input, limits);
      return { isDone: true, item: undefined, isRepeated };
    } catch (error) {
      return refusedOr(error);
    }
  }

  /** Rows of one `pk` from one `sk` to another, both included, in order: at most a megabyte. @internal */
  async range(pk: string, from: string, to: string, limit: number, limits: CallLimits): Promise<readonly Item[]> {
    return (await this.page(pk, from, to, limit, limits)).items;
  }

  /** The same rows, and whether these are all. @param order  default: the lowest `sk` first @internal */
  async page(
    pk: string,
    from: string,
    to: string,
    limit: number,
    limits: CallLimits,
    order?: 'newest first',
  ): Promise<Page> {
    const input = {
      TableName: this.table,
      ConsistentRead: true,
      KeyConditionExpression: 'pk = :pk and sk between :from and :to',
      ExpressionAttributeValues: { ':pk': { S: pk }, ':from': { S: from }, ':to': { S: to } },
      Limit: limit,
      ...(order !== undefined && { ScanIndexForward: false }),
    };
    const { output } = await this.#caller.send('Query', input, limits);
    return { items: itemsIn(output), isWhole: output['LastEvaluatedKey'] === undefined };
  }

  /** Every row whose `pk` begins with the prefix. Reads the whole table, so it is meant for people. @internal */
  async *scan(prefix: string, limits: CallLimits): AsyncGenerator<Item> {
    let start: unknown;
    do {
      const input = {
        TableName: this.table,
        ConsistentRead: true,
        FilterExpression: 'begins_with(pk, :prefix)',
        ExpressionAttributeValues: { ':prefix': { S: prefix } },
        ...(start !== undefined && { ExclusiveStartKey: start }),
      };
      const { output } = await this.#caller.send('Scan', input, limits);
      yield* itemsIn(output);
      start = output['LastEvaluatedKey'];
    } while (start !== undefined);
  }

  /** A condition on a row as a part of a caller's own transaction. Its values are texts. @internal */
  check(key: Key, written: RequestTexts): ConditionCheckItem {
    const { ConditionExpression = '', ExpressionAttributeNames: names, ExpressionAttributeValues: values } = written;
    const texts = Object.entries(values ?? {}).map(([place, value]) => [place, { S: 'S' in value ? value.S : '' }]);
    return {
      ConditionCheck: {
        TableName: this.table,
        Key: keyOf(key),
        ConditionExpression,
        ...(names !== undefined && { ExpressionAttributeNames: names }),
        ...(values !== undefined && { ExpressionAttributeValues: Object.fromEntries(texts) }),
      },
    };
  }
}

const TELL = { ReturnValuesOnConditionCheckFailure: 'ALL_OLD' };

function keyOf({ pk, sk }: Key): { pk: { S: string }; sk: { S: string } } {
  return { pk: { S: pk }, sk: { S: sk } };
}

function refusedOr(error: unknown): WriteOutcome {
  if (!(error instanceof ConditionRefusal)) throw error;
  return { isDone: false, item: isItem(error.item) ? error.item : undefined, isRepeated: error.isRepeated };
}

function itemIn(output: Readonly<Record<string, unknown>>, field: string): Item | undefined {
  const item = output[field];
  return isItem(item) ? item : undefined;
}

function itemsIn(output: Readonly<Record<string, unknown>>): readonly Item[] {
  const items = output['Items'];
  return Array.isArray(items) ? items.filter(isItem) : [];
}

/** The form in which the SDK returns rows. */
function isItem(value: unknown): value is Readonly<Record<string, Attribute>> {
  return isObject(value);
}
