import type { Backoff } from '../../base/time/backoff.ts';
import { type PostgresEngine, statement } from '../../engine/postgres/index.ts';
import type { ClaimAnswer } from '../store.ts';
import { alone, only, type Runner } from './runner.ts';

// The queue is looked up each time: its shards may change while a process of the HTTP API lives on.
const PULL = statement(
  'queue.pull',
  `select d.id, d.shards, s.shard, pawl.queue_pull(d.id, s.shard, $3::int, $4::float8, $5::text, $6::int, $7::bigint) as pulled
   from pawl.queue_definition d cross join lateral (select ($2::int % d.shards::int)::smallint as shard) s where d.id = pawl.queue_id($1::text)`,
);
const SETTLE = statement('queue.settle_pulled', 'select pawl.queue_settle_pulled($1::json, $2::json) as answer');
const OWN_BACKOFF = statement(
  'queue.own_backoff',
  `select j.options -> 'backoff'::text as backoff from pawl.queue_job j where j.shard = $1::smallint and j.id = $2::bigint`,
);
const EXTEND = statement('queue.extend', 'select pawl.queue_extend($1::json, $2::float8) as answer');
const RESCUE = statement(
  'queue.rescue_for_pull',
  'select r.jobs from pawl.queue_rescue($1::smallint, $2::bigint[], true) r',
);
const SWEEP = statement('queue.sweep_for_pull', 'select pawl.queue_sweep_cancels($1::smallint) as swept');
const LOOK = statement('queue.look_for_pull', 'select pawl.queue_look(1000) as rest');

/** The claim of one statement, its shard, and the number of shards. */
export interface PullAnswer {
  readonly id: number;
  readonly shards: number;
  readonly shard: number;
  readonly worker?: number;
  /** ms */
  readonly expiresAt?: number;
  /** The names of the queue's kinds, by id. */
  readonly kinds?: Readonly<Record<string, string>>;
  readonly answer?: ClaimAnswer;
  /**
   * True: a lease has ended, a job that has to be cancelled came back, or it is time to check whether jobs have ended that others
   * come after, so the chores may have work.
   */
  readonly hasLost: boolean;
}

/** A pulled unit, in the form of the database. */
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
  /** The number of the paused part that it is set aside for. */
  readonly part?: number | undefined;
}

export interface Extension {
  /** ms */
  readonly expiresAt: number;
  readonly isCancelled: boolean;
  readonly reason: string | null;
}

/** The statements of pull clients. One round trip each. */
export class PostgresQueuePull {
  readonly #alone: Runner;

  constructor(engine: PostgresEngine) {
    this.#alone = alone(engine);
  }

  /** @throws NotFound */
  async pull(
    queue: string,
    {
      turn,
      limit,
      leaseMs,
      host,
      pid,
      worker,
    }: Readonly<Record<'turn' | 'limit' | 'leaseMs' | 'pid', number>> & {
      /** The shard of this claim; after the last shard, the first one follows. */
      readonly turn: number;
      readonly host: string;
      /** The worker of earlier shards of the same call. */
      readonly worker: number | null;
    },
  ): Promise<PullAnswer> {
    const values = [queue, turn, limit, leaseMs, host, pid, worker];
    const [row] = await this.#alone.query<{ id: number; shards: number; shard: number; pulled: PullAnswer }>(
      PULL,
      values,
    );
    const { pulled, ...where } = only(row);
    return { ...pulled, ...where };
  }

  /** @param result  JSON @returns undefined if an open transaction guards the unit: nothing was written @throws LeaseLost */
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

  /** The backoff that the unit's newest job was enqueued with, if any. */
  async ownBackoff({ shard, job }: PulledKey): Promise<Backoff | undefined> {
    const [row] = await this.#alone.query<{ backoff: Backoff | null }>(OWN_BACKOFF, [shard, job]);
    return row?.backoff ?? undefined;
  }

  /** @param leaseMs  undefined: as long as before @throws LeaseLost */
  async extend(unit: PulledKey, leaseMs: number | undefined): Promise<Extension> {
    const [row] = await this.#alone.query<{ answer: Extension }>(EXTEND, [JSON.stringify(unit), leaseMs ?? null]);
    return only(row).answer;
  }

  /**
   * The occasional chores of workers: jobs of dead workers are given back, jobs that have to be cancelled end, and jobs and
   * callbacks that wait for jobs which have ended get their turn. @param mine  the workers of this process
   */
  async doChores(queue: number, mine: readonly number[]): Promise<void> {
    await this.#alone.query(RESCUE, [queue, mine]);
    await this.#alone.query(SWEEP, [queue]);
    await this.#alone.query(LOOK);
  }
}
