import type { ActorAdmin, Actors } from '../../actor/index.ts';
import { NotFound } from '../../base/errors.ts';
import type { DynamoEngine } from '../../engine/dynamodb/index.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { EXIT, Failure, nextStepOf } from '../output/failure.ts';
import { type Config, isEngine, isRecord, loadConfig } from './config.ts';
import type { Cli } from './run.ts';
import { needTarget } from './target.ts';

/** The actors of the database of the command line, or of its table of DynamoDB, without the program that runs them. */
export async function openAdmin(cli: Cli): Promise<ActorAdmin> {
  cli.advise(nextStep);
  const engine = await cli.ground();
  return (await import('../../actor/index.ts')).createActorAdmin(engine);
}

/** What to do next about an error of an actor or a page. */
export function nextStep(error: unknown): string | undefined {
  return error instanceof NotFound ? 'pawl actor list, or pawl page list, shows what there is' : nextStepOf(error);
}

/** The actors of the config file, with their program. @throws Failure (usage) if the file has none */
export async function openActors(cli: Cli): Promise<Actors> {
  cli.advise(nextStep);
  const config = await loadConfig(cli.globals.config);
  if (config === undefined) {
    throw new Failure('running a turn needs a config file that has the program', {
      exit: EXIT.usage,
      next: 'add --config FILE that exports actors; docs/cli.md shows one',
    });
  }
  const actors = await actorsOf(config, await openEngine(cli, config), cli);
  if (actors !== undefined) return actors;
  throw new Failure(`${config.file} has no actors`, {
    exit: EXIT.usage,
    next: 'export default ({ engine }) => ({ actors: createActors(engine, [Server]) })',
  });
}

/** The actors of the config file, with their program, if there is a file that has them. */
export async function findActors(cli: Cli): Promise<Actors | undefined> {
  const config = await loadConfig(cli.globals.config);
  return config === undefined ? undefined : actorsOf(config, config.engine ?? (await cli.ground()), cli);
}

/** The engine of the file, or that of the command line. */
async function openEngine(cli: Cli, config: Config): Promise<PostgresEngine | DynamoEngine> {
  const { engine } = config;
  if (engine !== undefined) cli.atEnd(() => engine.stop());
  if (engine !== undefined) return engine;
  return cli.table === undefined ? cli.open(await needTarget(cli.globals, config)) : cli.ground();
}

async function actorsOf(config: Config, engine: PostgresEngine | DynamoEngine, cli: Cli): Promise<Actors | undefined> {
  for (const given of [config.actors, config.workers]) {
    const made: unknown = isFactory(given) ? await given({ engine }) : given;
    if (isActors(made)) return made;
    if (!isRecord(made)) continue;
    const { engine: own, actors } = made;
    if (isEngine(own) && own !== engine) cli.atEnd(() => own.stop());
    if (isActors(actors)) return actors;
  }
  return undefined;
}

function isFactory(value: unknown): value is (given: { engine: PostgresEngine | DynamoEngine }) => unknown {
  return typeof value === 'function';
}

/** Recognized by its shape, because the user's file may load another copy of this package. */
export function isActors(value: unknown): value is Actors {
  return (
    isRecord(value) &&
    typeof value['work'] === 'function' &&
    typeof value['explain'] === 'function' &&
    typeof value['run'] === 'function'
  );
}
