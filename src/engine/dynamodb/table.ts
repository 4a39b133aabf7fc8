import { SchemaMismatch, TimedOut } from '../../base/errors.ts';
import { isObject } from '../../base/options/shape.ts';
import { sleep } from '../../base/time/clock.ts';
import type { RequestSender } from './call.ts';

/** The attribute by which DynamoDB may remove a row. Rows that hold a fencing token never have it. */
export const TTL = 'ttl';

const READY_MS = 60_000;
const LIMITS = { timeoutMs: 10_000 };

/** The result of `engine.migrate()`. */
export interface TableReport {
  readonly table: string;
  /** False if the table existed already. */
  readonly isCreated: boolean;
}

/** The table, as CreateTable takes it: two text keys, paid by request, no indexes. */
export function tableOf(name: string): Readonly<Record<string, unknown>> {
  return {
    TableName: name,
    BillingMode: 'PAY_PER_REQUEST',
    AttributeDefinitions: [
      { AttributeName: 'pk', AttributeType: 'S' },
      { AttributeName: 'sk', AttributeType: 'S' },
    ],
    KeySchema: [
      { AttributeName: 'pk', KeyType: 'HASH' },
      { AttributeName: 'sk', KeyType: 'RANGE' },
    ],
  };
}

/** The table as a template, which a team keeps next to its other templates. */
export function templateOf(name: string, kind: 'cloudformation' | 'terraform'): Readonly<Record<string, unknown>> {
  if (kind === 'terraform') return terraformOf(name);
  return {
    AWSTemplateFormatVersion: '2010-09-09',
    Resources: {
      PawlTable: {
        Type: 'AWS::DynamoDB::Table',
        DeletionPolicy: 'Retain',
        UpdateReplacePolicy: 'Retain',
        Properties: {
          ...tableOf(name),
          TimeToLiveSpecification: { AttributeName: TTL, Enabled: true },
          PointInTimeRecoverySpecification: { PointInTimeRecoveryEnabled: true },
        },
      },
    },
  };
}

function terraformOf(name: string): Readonly<Record<string, unknown>> {
  return {
    resource: {
      aws_dynamodb_table: {
        pawl: {
          name,
          billing_mode: 'PAY_PER_REQUEST',
          hash_key: 'pk',
          range_key: 'sk',
          attribute: [
            { name: 'pk', type: 'S' },
            { name: 'sk', type: 'S' },
          ],
          ttl: { attribute_name: TTL, enabled: true },
          point_in_time_recovery: { enabled: true },
        },
      },
    },
  };
}

/**
 * Creates the table unless it exists, waits until it can be used, and switches on time to live. Safe to call from many processes
 * at once.
 */
export async function createTable(caller: RequestSender, name: string): Promise<TableReport> {
  let isCreated = false;
  if ((await describe(caller, name)) === undefined) {
    try {
      await caller.send('CreateTable', tableOf(name), LIMITS);
      isCreated = true;
    } catch (error) {
      if (!isNamed(error, 'ResourceInUseException')) throw error;
    }
  }
  await untilActive(caller, name);
  await expireRows(caller, name);
  return { table: name, isCreated };
}

/** Whether the table exists. @throws SchemaMismatch  if it has other keys than Pawl needs */
export async function isTableThere(caller: RequestSender, name: string): Promise<boolean> {
  const found = await describe(caller, name);
  if (found === undefined) return false;
  const wanted = JSON.stringify(tableOf(name)['KeySchema']);
  if (JSON.stringify(found['KeySchema']) === wanted) return true;
  throw new SchemaMismatch(
    `table "${name}" does not have the keys pk and sk of type S; give Pawl a table of its own, by another name`,
  );
}

async function untilActive(caller: RequestSender, name: string): Promise<void> {
  const deadline = performance.now() + READY_MS;
  for (let pauseMs = 20; ; pauseMs = Math.min(pauseMs * 2, 2000)) {
    if ((await isTableThere(caller, name)) && (await describe(caller, name))?.['TableStatus'] === 'ACTIVE') return;
    if (performance.now() > deadline) throw new TimedOut(`table "${name}" was not ready within ${READY_MS / 1000} s`);
    await sleep(pauseMs);
  }
}

async function expireRows(caller: RequestSender, name: string): Promise<void> {
  try {
    const { output } = await caller.send('DescribeTimeToLive', { TableName: name }, LIMITS);
    const found = output['TimeToLiveDescription'];
    const status = isObject(found) ? found['TimeToLiveStatus'] : undefined;
    if (status === 'ENABLED' || status === 'ENABLING') return;
    const input = { TableName: name, TimeToLiveSpecification: { AttributeName: TTL, Enabled: true } };
    await caller.send('UpdateTimeToLive', input, LIMITS);
  } catch (error) {
    // Another process may do the same at this moment. A stand-in for DynamoDB may have no time to live; then old rows stay.
    if (!isNamed(error, 'ValidationException') && !isNamed(error, 'UnknownOperationException')) throw error;
  }
}

async function describe(caller: RequestSender, name: string): Promise<Readonly<Record<string, unknown>> | undefined> {
  try {
    const { output } = await caller.send('DescribeTable', { TableName: name }, LIMITS);
    return isObject(output['Table']) ? output['Table'] : undefined;
  } catch (error) {
    if (isNamed(error, 'ResourceNotFoundException')) return undefined;
    throw error;
  }
}

function isNamed(error: unknown, name: string): boolean {
  if (!(error instanceof Error)) return false;
  return error.name === name || (error.cause instanceof Error && error.cause.name === name);
}
