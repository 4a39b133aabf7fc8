import type { AnswerOptions, PostgresEngine, Statement } from '../../engine/postgres/index.ts';

/** Runs a statement: the pool, or one session inside its own transaction. */
export interface Runner {
  query<Row>(sql: Statement, values?: unknown[], options?: AnswerOptions): Promise<Row[]>;
}

/** Runs each statement with a time limit. */
export function limited(engine: PostgresEngine, answer: AnswerOptions): Runner {
  return { query: (sql, values) => engine.query(sql, values, answer) };
}

/** Others may wait for the locks of a statement until its COMMIT: no longer than for a statement without an answer. */
const IDLE_MS = 10_000;

/**
 * Runs each statement in a transaction of its own at read committed, whatever the database's default is. If the process
 * pauses before its COMMIT, the server rolls the transaction back.
 */
export function alone(engine: PostgresEngine, answer: AnswerOptions = {}): Runner {
  const options = { isolation: 'read committed', idleMs: answer.deadlineMs ?? IDLE_MS, ...answer } as const;
  return { query: (sql, values) => engine.transaction((tx) => tx.query(sql, values), options) };
}
