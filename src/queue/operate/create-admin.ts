import { DynamoEngine } from '../../engine/dynamodb/index.ts';
import { type PostgresEngine, requireEngine } from '../../engine/postgres/index.ts';
import { type AnyQueueAdmin, DynamoQueueAdmin } from '../dynamodb/operate/admin.ts';
import { QueueAdmin } from './admin.ts';

/** Operates every queue of a table of DynamoDB: see docs/dynamodb.md for what differs. Sends nothing until it is used. */
export function createQueueAdmin(engine: DynamoEngine): AnyQueueAdmin;
/** Operates every queue of a database, without their declarations. Sends nothing until it is used. */
export function createQueueAdmin(engine: PostgresEngine): QueueAdmin;
export function createQueueAdmin(engine: PostgresEngine | DynamoEngine): AnyQueueAdmin;
export function createQueueAdmin(engine: PostgresEngine | DynamoEngine): AnyQueueAdmin {
  if (engine instanceof DynamoEngine) return new DynamoQueueAdmin(engine);
  requireEngine('createQueueAdmin', engine);
  return new QueueAdmin(engine);
}
