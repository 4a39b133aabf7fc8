import { type PostgresEngine, type Statement, type Subscription, statement } from '../../../engine/postgres/index.ts';
import type { JobStatus } from '../../job.ts';

const WAIT: Statement = statement(
  'queue.wait',
  'select pawl.queue_wait($1, $2::double precision, $3::bigint[], $4::bigint[], $5::bigint[]) as answer',
);
const END: Statement = statement('queue.wait_end', 'select pawl.queue_wait_end($1)');
const NEWEST: Statement = statement('queue.newest', 'select pawl.queue_newest($1, $2)::text as id');

/** No statement of a wait is expensive; a poll repeats those that fail. */
const ANSWER_MS = 10_000;

/** A request of a process: new jobs to wait for, jobs that it waits for already, and jobs that it waits for no more. */
export interface WaitRequest {
  readonly added: readonly string[];
  readonly polled: readonly string[];
  readonly dropped: readonly string[];
  readonly leaseMs: number;
}

/** A job, its queue, and its status once it has ended. Both null: there is no such job. */
export type WaitedJob = readonly [id: number, queue: string | null, status: JobStatus | null];

/** A job that has ended, as the notification says. The result is missing if it has to be read. */
export type ToldJob = readonly [id: number, status: JobStatus, result?: unknown];

/** The statements of a process that waits for jobs, and its channel. */
export class PostgresQueueWaits {
  readonly #engine: PostgresEngine;

  constructor(engine: PostgresEngine) {
    this.#engine = engine;
  }

  /** @returns all of `added`, and those of `polled` that have ended */
  async wait(channel: string, { added, polled, dropped, leaseMs }: WaitRequest): Promise<readonly WaitedJob[]> {
    const values = [channel, leaseMs, added, polled, dropped];
    const [row] = await this.#engine.query<{ answer: readonly WaitedJob[] }>(WAIT, values, { deadlineMs: ANSWER_MS });
    return row?.answer ?? [];
  }

  /** Removes all rows of the process from the database. */
  async end(channel: string): Promise<void> {
    await this.#engine.query(END, [channel], { deadlineMs: ANSWER_MS });
  }

  listen(
    channel: string,
    { onTold, onReconnect }: { onTold: (jobs: readonly ToldJob[]) => void; onReconnect: () => void },
  ): Promise<Subscription> {
    const read = (payload: string): void => onTold(JSON.parse(payload) as readonly ToldJob[]);
    return this.#engine.listen(channel, read, { onReconnect });
  }

  /** The newest job of a key. */
  async newest(queue: string, key: string): Promise<string | undefined> {
    const [row] = await this.#engine.query<{ id: string | null }>(NEWEST, [queue, key]);
    return row?.id ?? undefined;
  }
}
