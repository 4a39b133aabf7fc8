import type { PostgresEngine, Transaction } from '../../engine/postgres/index.ts';
import type { Runner } from './runner.ts';
import * as sql from './statements.ts';

const PRUNE_MS = 3_600_000;

/** The traces in which jobs were enqueued. They are stored apart from the jobs, because most jobs have none. */
export class Traces {
  readonly #engine: PostgresEngine;
  readonly #runner: Runner;
  #prunesAt = -Infinity;

  constructor(engine: PostgresEngine, runner: Runner) {
    this.#engine = engine;
    this.#runner = runner;
  }

  /** The traces of the jobs that have one. With `tx`, it reads them in that transaction. */
  async read(ids: readonly string[], tx?: Transaction): Promise<ReadonlyMap<string, string>> {
    const rows = await (tx ?? this.#runner).query<{ id: string; parent: string }>(sql.TRACES, [ids]);
    return new Map(rows.map(({ id, parent }) => [id, parent]));
  }

  /** Stores the trace of jobs in the caller's transaction. */
  async write(tx: unknown, ids: readonly (string | number)[], trace: string): Promise<void> {
    await this.#engine.callIn(tx, sql.TRACE, JSON.stringify([trace, ids]));
  }

  /** A process that writes traces removes old ones, once an hour, so that they do not pile up. */
  pruneNowAndThen(): void {
    if (performance.now() < this.#prunesAt) return;
    this.#prunesAt = performance.now() + PRUNE_MS;
    this.#engine.query(sql.PRUNE_TRACES).catch((error: unknown) => {
      this.#engine.options.logger.warn({ err: error }, 'old traces of jobs could not be removed');
    });
  }
}
