import type { DynamoEngine } from 'pawl/dynamodb';
import type { PostgresEngine } from 'pawl/postgres';
import { createQueue, type DynamoQueue, type Queue } from 'pawl/queue';
import { CreatePayload, UpdatePayload } from './payload.ts';

type SheetKinds = {
  readonly create: { readonly payload: typeof CreatePayload; readonly unique: 'key' };
  readonly update: {
    readonly payload: typeof UpdatePayload;
    readonly after: readonly ['create'];
    readonly afterError: 'error';
    readonly coalesce: 'all';
  };
};

const kinds: SheetKinds = {
  // One create per spreadsheet, ever: asking again gives the first one's id.
  create: { payload: CreatePayload, unique: 'key' },
  // Waits for the create; all updates that are outstanding are one unit, so one file is written for them.
  update: { payload: UpdatePayload, after: ['create'], afterError: 'error', coalesce: 'all' },
};

export type SheetQueue = Queue<SheetKinds>;

/** The queue of the spreadsheets, as the front end and the back ends know it. The key is the spreadsheet's id. */
export function sheetQueue(engine: PostgresEngine): SheetQueue {
  return createQueue(engine, 'spreadsheets', { kinds });
}

type TableKinds = {
  readonly create: { readonly payload: typeof CreatePayload };
  readonly update: { readonly payload: typeof UpdatePayload; readonly coalesce: 'all' };
};

// No `unique`: the row of the spreadsheet is written in the same transaction, once. No `after`: the key has the order.
const tableKinds: TableKinds = {
  create: { payload: CreatePayload },
  update: { payload: UpdatePayload, coalesce: 'all' },
};

export type TableSheetQueue = DynamoQueue<TableKinds>;

/** The same on DynamoDB. */
export function tableSheetQueue(engine: DynamoEngine): TableSheetQueue {
  return createQueue(engine, 'spreadsheets', { kinds: tableKinds, shards: 1 });
}
