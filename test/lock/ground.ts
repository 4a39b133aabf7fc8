import { setTimeout as sleep } from 'node:timers/promises';
import { postgres } from '../../src/engine/postgres/index.ts';
import type { Lock, LockEngine } from '../../src/lock/index.ts';
import type { Write } from '../support/history/history.ts';

/** The settings of one party. */
export interface PartySettings {
  readonly listen?: boolean;
  readonly skewMs?: number;
  readonly rate?: number;
  /** How long its places in queues are kept without a renewal; default 1 s. */
  readonly waiterMs?: number;
  readonly faults?: number;
  /** On DynamoDB: leaves out the conditions of its writes. */
  readonly careless?: boolean;
}

/** The place where a party takes its locks and writes the values that they protect. */
export interface Ground {
  readonly engine: LockEngine;
  /**
   * Reads the value, pauses, writes the next value, and lets the guard decide.
   * @param isUnaware  does not check its own clock: only the database can refuse
   */
  write(lock: Lock, name: string, pauseMs: number, isUnaware: boolean): Promise<Write>;
}

export function postgresGround(url: string, listen: boolean | undefined): Ground {
  const engine = postgres(url, { max: 3, ...(listen === undefined ? {} : { listen }) });
  const write: Ground['write'] = (lock, name, pauseMs, isUnaware) =>
    engine.transaction(async (tx) => {
      const read = await tx.query<{ value: string }>(
        { name: 'test.read', text: 'select value from protected where name = $1', prepare: false },
        [name],
      );
      const value = Number(read[0]?.value ?? 0) + 1;
      await sleep(pauseMs);
      const [row] = await tx.query<{ seq: string }>(
        {
          name: 'test.write',
          text: `with put as (
            insert into protected values ($1, $2) on conflict (name) do update set value = excluded.value
          ) insert into written (name, value, token) values ($1, $2, $3) returning seq`,
          prepare: false,
        },
        [name, value, String(lock.token)],
      );
      if (isUnaware) {
        const key = JSON.stringify({ space: '', names: [name], token: String(lock.token) });
        await tx.query({ name: 'test.guard', text: 'select pawl.lock_guard($1::jsonb)', prepare: false }, [key]);
      } else await lock.guard(tx);
      return { name, value, token: String(lock.token), seq: Number(row?.seq) };
    });
  return { engine, write };
}
