import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { Program } from '../../http/index.ts';
import { isActors } from './actor-config.ts';
import { isCaptures } from './capture-config.ts';
import { type Config, isEngine, isRecord } from './config.ts';
import type { Cli } from './run.ts';

/** The program of a config file, if it has one: the dashboard can work with everything that `pawl worker` runs. */
export async function programOf(
  cli: Cli,
  config: Config | undefined,
  engine: PostgresEngine,
): Promise<Partial<Program>> {
  if (config === undefined) return {};
  const { engine: own } = config;
  if (own !== undefined) cli.atEnd(() => own.stop());
  const given = await Promise.all([config.workers, config.actors, config.captures].map((one) => make(one, engine)));
  const parts = given.map((one) => (isRecord(one) && !isActors(one) ? one : {}));
  for (const { engine: made } of parts) if (isEngine(made) && made !== engine) cli.atEnd(() => made.stop());
  const all = [...given, ...parts.flatMap(({ workers, actors, captures }) => [workers, actors, captures])];
  return {
    queues: all.flatMap(queuesOf),
    actors: all.filter(isActors),
    captures: all.filter(isCaptures).flat(),
  };
}

function make(given: unknown, engine: PostgresEngine): unknown {
  return isFactory(given) ? given({ engine }) : given;
}

function isFactory(value: unknown): value is (given: { engine: PostgresEngine }) => unknown {
  return typeof value === 'function';
}

function queuesOf(workers: unknown): Program['queues'] {
  if (!Array.isArray(workers)) return [];
  return workers.flatMap((entry: unknown) => (isRecord(entry) && isQueue(entry['queue']) ? [entry['queue']] : []));
}

function isQueue(value: unknown): value is Program['queues'][number] {
  return isRecord(value) && typeof value['name'] === 'string' && typeof value['check'] === 'function';
}
