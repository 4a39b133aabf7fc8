import type { AnswerOptions, PostgresEngine, Statement } from '../../engine/postgres/index.ts';

/** Runs a statement: the pool, or one session inside its own transaction. */
export interface Runner {
  query<Row>(sql: Statement, values?: unknown[], options?: AnswerOptions): Promise<Row[]>;
}

/** Runs each statement with a time limit. */
export function limited(engine: PostgresEngine, answer: AnswerOptions): Runner {
  return { query: (sql, values) => engine.query(sql, values, answer) };
}

/**
 * Other transactions may wait for the locks of a statement until its COMMIT. They wait no longer than for a statement without
 * an answer.
 */
const IDLE_MS = 10_000;

/**
 * Runs each statement in a transaction of its own at read committed, whatever the database's default is. If the process
 * pauses before its COMMIT, the server rolls the transaction back.
 */
export function alone(engine: PostgresEngine, answer: AnswerOptions = {}): Runner {
  const options = { isolation: 'read committed', idleMs: answer.deadlineMs ?? IDLE_MS, ...answer } as const;
  return { query: (sql, values) => engine.transaction((tx) => tx.query(sql, values), options) };
}

/** The row of a statement that always answers one. */
export function only<T>(row: T | undefined): T {
  if (row === undefined) throw new Error('the database returned no row where there is always one');
  return row;
}

/** `{1,2,3}`: the text of an integer array, which is cheaper to read than the driver's own array of strings. */
export function numbers(text: string): number[] {
  return text === '{}' ? [] : text.slice(1, -1).split(',').map(Number);
}

/** Decodes a json column, which some drivers parse and some do not. */
export function fromJson(value: unknown): unknown {
  return typeof value === 'string' ? JSON.parse(value) : value;
}
