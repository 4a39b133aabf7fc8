import type { AnswerOptions, PostgresEngine, Statement } from '../../engine/postgres/index.ts';

/** Who runs a statement: the pool, or one session inside its own transaction. */
export interface Runner {
  query<Row>(sql: Statement, values?: unknown[], options?: AnswerOptions): Promise<Row[]>;
}

/** Each statement with a limit to how long it may take. */
export function limited(engine: PostgresEngine, answer: AnswerOptions): Runner {
  return { query: (sql, values) => engine.query(sql, values, answer) };
}

/** Between a statement and its COMMIT others may wait for its locks: not longer than for a statement that is not answered. */
const IDLE_MS = 10_000;

/**
 * Each statement in a transaction of its own at read committed, whatever the database's default is. A process that stands still
 * before its COMMIT has it undone.
 */
export function alone(engine: PostgresEngine, answer: AnswerOptions = {}): Runner {
  const options = { isolation: 'read committed', idleMs: answer.deadlineMs ?? IDLE_MS, ...answer } as const;
  return { query: (sql, values) => engine.transaction((tx) => tx.query(sql, values), options) };
}
