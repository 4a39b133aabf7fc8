import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { type CapturedRow, type CaptureOptions, captureRows } from '../../src/lock/index.ts';
import { one } from './move.ts';

/** A lock that one of the two clients holds. */
export interface Grant {
  readonly name: string;
  readonly token: string;
}

/** What one of two clients of the same namespace holds, waits for and may have, and rows of a table of the user's. */
export interface LockSide {
  readonly space: string;
  readonly process: string;
  /** Held alone, without waiters. */
  readonly held: Grant;
  /** Held alone; somebody waits, whose place has this nonce. */
  readonly wanted: Grant & { readonly nonce: string };
  /** Held by a process that died: its lease is over. */
  readonly expired: string;
  /** Was held, and is free. */
  readonly free: string;
  /** Of a table of the user's, by its primary key; and the key of an advisory lock. */
  readonly row: number;
  /** Whose rows are to be captured. */
  readonly owner: string;
  readonly captured: readonly CapturedRow<Row>[];
}

export interface Row {
  readonly id: number;
  readonly owner: string;
  readonly status: string;
}

export interface LockStage {
  readonly a: LockSide;
  readonly b: LockSide;
}

/** A new namespace, and in it the same for each of two clients. */
export async function setLockStage(client: pg.Client): Promise<LockStage> {
  await client.query(
    'create table if not exists task (id int generated always as identity primary key, owner text, status text not null)',
  );
  const space = randomUUID();
  return { a: await side(client, space, 'a'), b: await side(client, space, 'b') };
}

/** A place in a queue lasts longer than all meetings of one stage take on a busy machine. */
export const PLACE_MS = 600_000;

/** As `lock_acquire_one` is called for one name held alone. */
export function takeValues(
  space: string,
  name: string,
  leaseMs: number,
  process: string,
  nonce: string = randomUUID(),
): unknown[] {
  return [space, name, nonce, leaseMs, process, 'host', 1, PLACE_MS, null];
}

export const TAKE = 'select pawl.lock_acquire_one($1, $2, $3, $4, $5, $6, $7, $8, $9)';

async function side(client: pg.Client, space: string, which: string): Promise<LockSide> {
  const process = `process_${which}`;
  const take = async (name: string, leaseMs = 600_000): Promise<Grant> => {
    const answer = String(await one(client, TAKE, takeValues(space, name, leaseMs, process)));
    const { token } = JSON.parse(answer) as { token: string };
    return { name, token };
  };
  const [held, wanted, gone, free] = [
    await take(`held by ${which}`),
    await take(`wanted from ${which}`),
    await take(`expired of ${which}`),
    await take(`free for ${which}`),
  ];
  const nonce = randomUUID();
  await one(client, TAKE, takeValues(space, wanted.name, 600_000, 'process_waiting', nonce));
  await client.query(
    `update pawl.lock_grant set expires_at = clock_timestamp() - interval '1 s' where space = $1 and name = $2`,
    [space, gone.name],
  );
  await one(client, 'select pawl.lock_release_one($1, $2, $3, $4)', [space, free.name, free.token, process]);
  const row = await newRow(client, `${which} to be locked`);
  await newRow(client, `${space} ${which}`);
  await client.query('begin');
  const captured = await captureRows<Row>(client, 'task', capture(`${space} ${which}`));
  await client.query('commit');
  await newRow(client, `${space} ${which}`);
  return {
    space,
    process,
    held,
    wanted: { ...wanted, nonce },
    expired: gone.name,
    free: free.name,
    row,
    owner: `${space} ${which}`,
    captured,
  };
}

async function newRow(client: pg.Client, owner: string): Promise<number> {
  return Number(await one(client, `insert into task (owner, status) values ($1, 'new') returning id`, [owner]));
}

/** As `captureRows` is told to capture one row of this owner. */
export function capture(owner: string): CaptureOptions<Row> {
  return { status: { from: 'new', to: 'doing' }, limit: 1, where: { owner }, lease: '10m' };
}
