/** A value in the form of DynamoDB; the kinds that Pawl uses. */
export type Attribute =
  | { readonly S: string }
  | { readonly N: string }
  | { readonly M: Item }
  | { readonly L: readonly Attribute[] };

/** A row of a table: its attributes by name. */
export type Item = Readonly<Record<string, Attribute>>;

/**
 * A `DynamoDBClient` of `@aws-sdk/client-dynamodb` v3. The type has only its shape, so a program with another engine does not need
 * that package.
 */
export interface DynamoClient {
  send(command: never, options?: never): Promise<unknown>;
}

/** The time limits of one call. */
export interface CallLimits {
  /** If no answer comes within this time, the call fails with ConnectionFailed. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** The answer of the service. */
export interface Reply {
  readonly output: Readonly<Record<string, unknown>>;
  /** True: the request was sent more than once, and may have been carried out before. */
  readonly isRepeated: boolean;
}

/** A text attribute. */
export function text(value: string): Attribute {
  return { S: value };
}

/** A number attribute. */
export function num(value: number | bigint): Attribute {
  return { N: String(value) };
}

/** @returns undefined if there is none */
export function readText(item: Item | undefined, name: string): string | undefined {
  const value = item?.[name];
  return value !== undefined && 'S' in value ? value.S : undefined;
}

/** @returns `absent` if there is none */
export function readNumber(item: Item | undefined, name: string, absent = 0): number {
  const value = item?.[name];
  return value !== undefined && 'N' in value ? Number(value.N) : absent;
}

/** @returns 0 if there is none */
export function readBig(item: Item | undefined, name: string): bigint {
  const value = item?.[name];
  return value !== undefined && 'N' in value ? BigInt(value.N) : 0n;
}

/** @returns undefined if there is none */
export function readMap(item: Item | undefined, name: string): Item | undefined {
  const value = item?.[name];
  return value !== undefined && 'M' in value ? value.M : undefined;
}

/** @returns an empty list if there is none */
export function readList(item: Item | undefined, name: string): readonly Attribute[] {
  const value = item?.[name];
  return value !== undefined && 'L' in value ? value.L : [];
}

/** The texts of one request, and the values of its placeholders. */
export interface RequestTexts {
  readonly UpdateExpression?: string;
  readonly ConditionExpression?: string;
  readonly ExpressionAttributeNames?: Record<string, string>;
  readonly ExpressionAttributeValues?: Record<string, Attribute>;
}

/** The place of a row. */
export interface Key {
  readonly pk: string;
  readonly sk: string;
}

/** The outcome of a conditional request. */
export type WriteOutcome =
  | { readonly isDone: true; readonly item: Item | undefined; readonly isRepeated: boolean }
  /** The condition did not hold; `item` is the row at that time, if the service returns it. */
  | { readonly isDone: false; readonly item: Item | undefined; readonly isRepeated: boolean };

/** One of several writes that are carried out together or not at all. */
export interface PartialWrite {
  readonly key: Key;
  readonly written: RequestTexts;
}

/** The removal or the check of a row, together with such writes. Its condition is that of `removed` or `checked`. */
export type PartialCondition =
  | { readonly key: Key; readonly removed: RequestTexts }
  | { readonly key: Key; readonly checked: RequestTexts };

/** Rows of one `pk`. */
export interface Page {
  readonly items: readonly Item[];
  /** False: there may be more rows. */
  readonly isWhole: boolean;
}
