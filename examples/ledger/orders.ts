import {
  type AttributeValue,
  DeleteItemCommand,
  type DynamoDBClient,
  GetItemCommand,
  PutItemCommand,
  QueryCommand,
  type TransactWriteItem,
  TransactWriteItemsCommand,
} from '@aws-sdk/client-dynamodb';

/** Money that goes from one order to another: two rows change, and their sum does not. */
interface Move {
  readonly id: string;
  readonly from: number;
  readonly to: number;
  readonly amount: number;
}

/** What must hold when a row is written: that of a lock, or nothing. */
export type Guard = () => readonly TransactWriteItem[];

const AMOUNT = 100;

/**
 * The orders of one user, a row each. A move is more than one write, and a sum more than one read; nothing here keeps one
 * from meeting the other. That is what the lock is for.
 */
export class Orders {
  readonly #client: DynamoDBClient;
  readonly #table: string;
  readonly #user: string;
  readonly #count: number;

  constructor(client: DynamoDBClient, table: string, user: string, count: number) {
    this.#client = client;
    this.#table = table;
    this.#user = user;
    this.#count = count;
  }

  /** What every sum must be. */
  get total(): number {
    return this.#count * AMOUNT;
  }

  async fill(): Promise<void> {
    for (let order = 0; order < this.#count; order++) {
      const Item = { ...this.#key(`order#${order}`), amount: { N: String(AMOUNT) }, move: { S: 'none' } };
      await this.#client.send(new PutItemCommand({ TableName: this.#table, Item }));
    }
  }

  /** Reads all orders, as somebody does who goes through them row by row. */
  async sum(): Promise<number> {
    let sum = 0;
    let start: Record<string, AttributeValue> | undefined;
    do {
      const page = await this.#client.send(
        new QueryCommand({
          TableName: this.#table,
          ConsistentRead: true,
          KeyConditionExpression: 'pk = :user and begins_with(sk, :order)',
          ExpressionAttributeValues: { ':user': { S: this.#pk }, ':order': { S: 'order#' } },
          Limit: 2,
          ...(start !== undefined && { ExclusiveStartKey: start }),
        }),
      );
      for (const { amount } of page.Items ?? []) sum += Number(amount?.N);
      start = page.LastEvaluatedKey;
    } while (start !== undefined);
    return sum;
  }

  /**
   * Moves money: writes its intention, does one half, then the other. A process that dies in between leaves the rest to the
   * next one.
   */
  async move(guard: Guard, onHalf: () => Promise<void>): Promise<void> {
    const [from, to] = [Math.floor(Math.random() * this.#count), Math.floor(Math.random() * this.#count)];
    if (from === to) return;
    const move: Move = { id: crypto.randomUUID(), from, to, amount: 1 + Math.floor(Math.random() * 10) };
    await this.#write(guard, {
      Put: { TableName: this.#table, Item: { ...this.#key('move'), json: { S: JSON.stringify(move) } } },
    });
    await this.#carryOut(move, guard, onHalf);
  }

  /** Ends what somebody before had begun. @returns whether there was anything */
  async finish(guard: Guard): Promise<boolean> {
    const { Item } = await this.#client.send(
      new GetItemCommand({ TableName: this.#table, Key: this.#key('move'), ConsistentRead: true }),
    );
    if (Item?.['json']?.S === undefined) return false;
    await this.#carryOut(JSON.parse(Item['json'].S), guard);
    return true;
  }

  async #carryOut({ id, from, to, amount }: Move, guard: Guard, onHalf?: () => Promise<void>): Promise<void> {
    await this.#add(`order#${from}`, -amount, id, guard);
    await onHalf?.();
    await this.#add(`order#${to}`, amount, id, guard);
    await this.#client
      .send(
        new DeleteItemCommand({
          TableName: this.#table,
          Key: this.#key('move'),
          ConditionExpression: 'contains(json, :id)',
          ExpressionAttributeValues: { ':id': { S: id } },
        }),
      )
      .catch(unlessRefused);
  }

  /** Once for each move, however often it is tried. */
  async #add(sk: string, amount: number, id: string, guard: Guard): Promise<void> {
    const update: TransactWriteItem = {
      Update: {
        TableName: this.#table,
        Key: this.#key(sk),
        UpdateExpression: 'SET amount = amount + :amount, #move = :id',
        ConditionExpression: '#move <> :id',
        ExpressionAttributeNames: { '#move': 'move' },
        ExpressionAttributeValues: { ':amount': { N: String(amount) }, ':id': { S: id } },
      },
    };
    await this.#write(guard, update).catch(unlessDoneBefore);
  }

  async #write(guard: Guard, ...items: TransactWriteItem[]): Promise<void> {
    await this.#client.send(new TransactWriteItemsCommand({ TransactItems: [...guard(), ...items] }));
  }

  get #pk(): string {
    return `user:${this.#user}`;
  }

  #key(sk: string): { pk: { S: string }; sk: { S: string } } {
    return { pk: { S: this.#pk }, sk: { S: sk } };
  }
}

function unlessRefused(error: unknown): void {
  if (!(error instanceof Error) || error.name !== 'ConditionalCheckFailedException') throw error;
}

/** The last part is ours, those before are the guard's: only if that held has the work been done before. */
function unlessDoneBefore(error: unknown): void {
  const reasons: unknown = error instanceof Error ? Reflect.get(error, 'CancellationReasons') : undefined;
  const codes = Array.isArray(reasons) ? reasons.map((reason) => String(reason?.Code)) : [];
  if (codes.at(-1) !== 'ConditionalCheckFailed' || codes.slice(0, -1).some((code) => code !== 'None')) throw error;
}
