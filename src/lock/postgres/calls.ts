import { PawlError } from '../../base/errors.ts';
import type { PostgresEngine, Statement } from '../../engine/postgres/index.ts';
import type { CallOptions } from '../store.ts';
import { callWithin } from './session-call.ts';

/** Calls of functions in sql/lock, each within the time of its caller. */
export class Calls {
  readonly #engine: PostgresEngine;
  /** True when the default isolation of the server is not read committed: each decision then sets the isolation. */
  #isExplicit = false;

  constructor(engine: PostgresEngine) {
    this.#engine = engine;
  }

  /** Runs a function that decides: one round trip, even if the default isolation is not read committed. */
  async decide<Row>(decision: Statement, values: Value[], options: CallOptions): Promise<Row[]> {
    if (!this.#isExplicit) {
      try {
        return await this.call<Row>(decision, values, options);
      } catch (error) {
        if (!isWrongIsolation(error)) throw error;
        this.#isExplicit = true;
      }
    }
    // One text of three statements: the client cannot stop between them and leave the latch locked.
    const body = decision.text.replaceAll(/\$(\d+)/g, (_, place: string) => literal(values[Number(place) - 1]));
    const text = `begin isolation level read committed;\n${body};\ncommit`;
    const [, answer] = await callWithin(this.#engine, decision.name, options, (session) => session.run<Row>(text));
    return answer?.rows ?? [];
  }

  call<Row>(sent: Statement, values: unknown[], options: CallOptions): Promise<Row[]> {
    return callWithin(this.#engine, sent.name, options, (session) => session.query<Row>(sent, values));
  }
}

function isWrongIsolation(error: unknown): boolean {
  return error instanceof PawlError && 'sqlState' in error && error.sqlState === 'PW005';
}

/** A value for the text of a statement; it means the same under every setting of standard_conforming_strings. */
export type Value = string | number | boolean | null | readonly string[];

function literal(value: Value | undefined): string {
  if (value === null || value === undefined) return 'null';
  if (typeof value === 'object') return `array[${value.map(literal).join(', ')}]`;
  return `E'${String(value).replaceAll('\\', '\\\\').replaceAll("'", "''")}'`;
}
