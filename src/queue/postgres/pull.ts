import { type PostgresEngine, statement } from '../../engine/postgres/index.ts';
import type { ClaimAnswer } from '../store.ts';
import { alone, only, type Runner } from './runner.ts';

const QUEUE = statement(
  'queue.pull_from',
  'select d.id, d.shards from pawl.queue_definition d where d.id = pawl.queue_id($1::text)',
);
const PULL = statement(
  'queue.pull',
  'select pawl.queue_pull($1::smallint, $2::smallint, $3::int, $4::float8, $5::text, $6::int, $7::bigint) as pulled',
);
const SETTLE = statement('queue.settle_pulled', 'select pawl.queue_settle_pulled($1::json, $2::json) as answer');
const EXTEND = statement('queue.extend', 'select pawl.queue_extend($1::json, $2::float8) as answer');
const RESCUE = statement('queue.rescue_for_pull', 'select r.jobs from pawl.queue_rescue($1::smallint) r');

/** What one statement has claimed. */
export interface PullAnswer {
  readonly worker?: number;
  /** ms */
  readonly expiresAt?: number;
  /** The names of the queue's kinds, by id. */
  readonly kinds?: Readonly<Record<string, string>>;
  readonly answer?: ClaimAnswer;
  /** A lease is over: a rescue may bring more. */
  readonly hasLost: boolean;
}

/** A pulled unit, as the database knows it. */
export interface PulledKey {
  readonly shard: number;
  readonly worker: number;
  readonly claim: number;
  readonly job: number;
  readonly process: string;
}

export interface PulledOutcome {
  readonly to: 'complete' | 'retry' | 'error' | 'release' | 'cancelled';
  /** ms */
  readonly wait?: number | undefined;
  readonly reason?: string | undefined;
  readonly error?: string | undefined;
  readonly isGuarded?: boolean | undefined;
}

export interface Extension {
  /** ms */
  readonly expiresAt: number;
  readonly isCancelled: boolean;
  readonly reason: string | null;
}

/** The statements of pull clients. One round trip each. */
export class PostgresQueuePull {
  readonly #engine: PostgresEngine;
  readonly #alone: Runner;

  constructor(engine: PostgresEngine) {
    this.#engine = engine;
    this.#alone = alone(engine);
  }

  /** @throws NotFound */
  async queue(name: string): Promise<{ readonly id: number; readonly shards: number }> {
    const [row] = await this.#engine.query<{ id: number; shards: number }>(QUEUE, [name]);
    return only(row);
  }

  async pull(
    queue: number,
    {
      shard,
      limit,
      leaseMs,
      host,
      pid,
      worker,
    }: Readonly<Record<'shard' | 'limit' | 'leaseMs' | 'pid', number>> & {
      readonly host: string;
      /** That of earlier shards of the same call. */
      readonly worker: number | null;
    },
  ): Promise<PullAnswer> {
    const values = [queue, shard, limit, leaseMs, host, pid, worker];
    const [row] = await this.#alone.query<{ pulled: PullAnswer }>(PULL, values);
    return only(row).pulled;
  }

  /** @param result  JSON @returns undefined when an open transaction guards the unit: nothing was written @throws LeaseLost */
  async settle(
    unit: PulledKey,
    outcome: PulledOutcome,
    result: string | undefined,
  ): Promise<PulledOutcome['to'] | undefined> {
    const [row] = await this.#alone.query<{ answer: { to?: PulledOutcome['to'] } }>(SETTLE, [
      JSON.stringify({ ...unit, ...outcome }),
      result ?? null,
    ]);
    return only(row).answer.to;
  }

  /** @throws LeaseLost */
  async extend(unit: PulledKey, leaseMs: number): Promise<Extension> {
    const [row] = await this.#alone.query<{ answer: Extension }>(EXTEND, [JSON.stringify(unit), leaseMs]);
    return only(row).answer;
  }

  async rescue(queue: number): Promise<void> {
    await this.#alone.query(RESCUE, [queue]);
  }
}
