import type { Capture, CaptureAdmin } from '../../capture/index.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { EXIT, Failure } from '../output/failure.ts';
import { type Config, isEngine, isRecord, loadConfig } from './config.ts';
import type { Cli } from './run.ts';
import { needTarget } from './target.ts';

/** The captures of the database of the command line, without the program that declares them. */
export async function openCaptureAdmin(cli: Cli): Promise<CaptureAdmin> {
  const engine = await cli.engine();
  return (await import('../../capture/index.ts')).createCaptureAdmin(engine);
}

/** The capture of the config file, with its projections. @throws Failure (usage) if the file has none of that name */
export async function openCapture(cli: Cli, entity: string): Promise<Capture> {
  const config = await loadConfig(cli.globals.config);
  if (config === undefined) {
    throw new Failure('this needs a config file that declares the capture', {
      exit: EXIT.usage,
      next: 'add --config FILE that exports captures; docs/cli.md shows one',
    });
  }
  const engine = config.engine ?? (await cli.open(await needTarget(cli.globals, config)));
  if (config.engine !== undefined) cli.atEnd(() => engine.stop());
  const captures = await capturesOf(config, engine, cli);
  const found = captures.find((capture) => capture.entity === entity);
  if (found !== undefined) return found;
  const names = captures.map((capture) => capture.entity).join(', ');
  throw new Failure(`${config.file} declares no capture "${entity}"${names === '' ? '' : `; it has ${names}`}`, {
    exit: EXIT.usage,
    next: 'export default ({ engine }) => ({ captures: [createCapture(engine, { entity, root })] })',
  });
}

async function capturesOf(config: Config, engine: PostgresEngine, cli: Cli): Promise<Capture[]> {
  for (const given of [config.captures, config.workers]) {
    const made: unknown = isFactory(given) ? await given({ engine }) : given;
    if (isCaptures(made) && made.length > 0) return made;
    if (!isRecord(made)) continue;
    const { engine: own, captures } = made;
    if (isEngine(own) && own !== engine) cli.atEnd(() => own.stop());
    if (isCaptures(captures) && captures.length > 0) return captures;
  }
  return [];
}

function isFactory(value: unknown): value is (given: { engine: PostgresEngine }) => unknown {
  return typeof value === 'function';
}

/** Recognized by its shape, because the user's file may load another copy of this package. */
export function isCaptures(value: unknown): value is Capture[] {
  return (
    Array.isArray(value) &&
    value.every(
      (one: unknown) => isRecord(one) && typeof one['entity'] === 'string' && typeof one['verify'] === 'function',
    )
  );
}
