import { onTestFinished } from 'vitest';
import { type Actors, createActors, type Dispatcher, type RunOptions } from '../../src/actor/index.ts';
import { type PostgresEngine, type PostgresOptions, postgres, statement } from '../../src/engine/postgres/index.ts';
import { warmDatabase } from '../support/warm-database.ts';

export interface ActorScene {
  readonly url: string;
  readonly engine: PostgresEngine;
  readonly actors: Actors;
  /** A dispatcher that is stopped with the test. */
  readonly run: (options?: RunOptions) => Promise<Dispatcher>;
  /** The first column of the first row. */
  readonly one: <T = unknown>(sql: string, values?: unknown[]) => Promise<T>;
  readonly query: <Row = Record<string, unknown>>(sql: string, values?: unknown[]) => Promise<Row[]>;
}

export interface SceneOptions extends PostgresOptions {
  /** Another database than one of its own. */
  readonly url?: string;
}

/** A database of its own with these types of actors, which was empty before; closed with the test. */
export async function openScene(
  definitions: Parameters<typeof createActors>[1],
  { url: given, ...options }: SceneOptions = {},
): Promise<ActorScene> {
  const database = given === undefined ? await warmDatabase() : undefined;
  const url = given ?? database?.url ?? '';
  const engine = postgres(options.max === undefined ? (database?.pool ?? url) : url, { max: 12, ...options });
  const actors = createActors(engine, definitions);
  const running: Dispatcher[] = [];
  onTestFinished(async () => {
    await Promise.all(running.map((dispatcher) => dispatcher.stop({ timeout: 0 })));
    await engine.stop();
    await database?.giveBack();
  });
  const query = <Row>(sql: string, values: unknown[] = []): Promise<Row[]> =>
    engine.query<Row>(statement('test', sql, { prepare: false }), values);
  return {
    url,
    engine,
    actors,
    query,
    one: async <T>(sql: string, values?: unknown[]): Promise<T> => {
      const [row] = await query<Record<string, T>>(sql, values);
      return Object.values(row ?? {})[0] as T;
    },
    run: async (options) => {
      const dispatcher = actors.run({ poll: '200ms', ...options });
      running.push(dispatcher);
      await dispatcher.started;
      return dispatcher;
    },
  };
}
