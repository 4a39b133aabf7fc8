import { existsSync, readFileSync } from 'node:fs';
import { basename, extname, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { suggest } from '../../base/options/options.ts';
import type { DynamoEngine } from '../../engine/dynamodb/index.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { EXIT, Failure } from '../output/failure.ts';

const NAMES = ['pawl.config.js', 'pawl.config.mjs', 'pawl.config.json'];
const KEYS = [
  'url',
  'directUrl',
  'prepare',
  'schema',
  'engine',
  'workers',
  'actors',
  'dispatcher',
  'captures',
  'projections',
  'http',
];

/** The content of a config file. If the default export is a function, `pawl worker` calls it with `{ engine }`. */
export interface Config {
  /** The path of the file. */
  readonly file: string;
  readonly url: string | undefined;
  /** A URL that reaches the server itself, for LISTEN, if `url` names a pooler. */
  readonly directUrl: string | undefined;
  readonly prepare: boolean | undefined;
  /** The schema of Pawl's tables, if it is not `pawl`. */
  readonly schema: string | undefined;
  /** An engine that the user has made, for `pawl worker`. */
  readonly engine: PostgresEngine | undefined;
  /** The same, if it is on a table of DynamoDB. */
  readonly table: DynamoEngine | undefined;
  /** For `pawl worker`: a list, or a function that returns an object with a list. */
  readonly workers: unknown;
  /** Made by `createActors()`, or a function that makes them, for `pawl worker`, `pawl actor work` and `pawl repl`. */
  readonly actors: unknown;
  /** Options of `actors.run()`, for `pawl worker`: concurrency, types, channels of pages… */
  readonly dispatcher: unknown;
  /** Captures that `createCapture()` made, for `pawl capture` and `pawl worker`. */
  readonly captures: unknown;
  /** Options of `capture.run()`, for `pawl worker`: concurrency, batch… */
  readonly projections: unknown;
  /** Options of `createHttp()`, for `pawl dashboard`. */
  readonly http: unknown;
}

/**
 * Loads the config file: the named one, or else the one of this folder.
 * @returns undefined if none was named and the folder has none
 * @throws Failure (usage) if it cannot be read
 */
export async function loadConfig(
  named: string | undefined,
  folder: string = process.cwd(),
): Promise<Config | undefined> {
  const file =
    named === undefined ? NAMES.map((name) => resolve(folder, name)).find(existsSync) : resolve(folder, named);
  if (file === undefined) return undefined;
  if (!existsSync(file))
    throw new Failure(`there is no config file ${file}`, { exit: EXIT.usage, next: 'check --config' });
  return read(file, extname(file) === '.json' ? parseJson(file) : await importModule(file));
}

function parseJson(file: string): unknown {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw unreadable(file, error);
  }
}

async function importModule(file: string): Promise<unknown> {
  try {
    const module: Record<string, unknown> = await import(pathToFileURL(file).href);
    const { default: main, ...named } = module;
    if (typeof main === 'function') return { ...named, workers: main };
    return { ...named, ...(isRecord(main) ? main : {}) };
  } catch (error) {
    throw unreadable(file, error);
  }
}

function read(file: string, value: unknown): Config {
  const name = basename(file);
  if (!isRecord(value)) throw new Failure(`${name} must hold an object`, { exit: EXIT.usage });
  for (const key of Object.keys(value)) {
    // A module may export more names for its own purposes, but a name that is close to a key is probably a mistake.
    const near = KEYS.includes(key) ? undefined : suggest(key, KEYS);
    if (near !== undefined) {
      throw new Failure(`${name} has "${key}"; did you mean "${near}"?`, { exit: EXIT.usage, next: `correct ${file}` });
    }
  }
  const text = (key: string): string | undefined => {
    const given = value[key];
    if (given === undefined || typeof given === 'string') return given;
    throw new Failure(`"${key}" in ${name} must be text`, { exit: EXIT.usage, next: `correct ${file}` });
  };
  const { prepare, engine, workers, actors, dispatcher, captures, projections, http } = value;
  if (prepare !== undefined && typeof prepare !== 'boolean') {
    throw new Failure(`"prepare" in ${name} must be true or false`, { exit: EXIT.usage, next: `correct ${file}` });
  }
  if (engine !== undefined && !isEngine(engine) && !isTable(engine)) {
    throw new Failure(`"engine" in ${name} must be made by postgres() or dynamodb()`, {
      exit: EXIT.usage,
      next: `correct ${file}`,
    });
  }
  return {
    file,
    url: text('url'),
    directUrl: text('directUrl'),
    prepare,
    schema: text('schema'),
    engine: isEngine(engine) ? engine : undefined,
    table: isTable(engine) ? engine : undefined,
    workers,
    actors,
    dispatcher,
    captures,
    projections,
    http,
  };
}

/** Recognized by its shape, because the user's file may load another copy of this package. */
export function isEngine(value: unknown): value is PostgresEngine {
  return isRecord(value) && value['kind'] === 'postgres' && typeof value['migrate'] === 'function';
}

/** The same for an engine on a table of DynamoDB. */
export function isTable(value: unknown): value is DynamoEngine {
  return isRecord(value) && value['kind'] === 'dynamodb' && typeof value['migrate'] === 'function';
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function unreadable(file: string, error: unknown): Failure {
  const next = needsTsx(file, error)
    ? 'write it as .mjs, or run with NODE_OPTIONS="--import tsx"'
    : `correct the file; node ${basename(file)} shows the error by itself`;
  const why = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return new Failure(`the config file ${file} cannot be loaded: ${why}`, { exit: EXIT.usage, next });
}

/**
 * True if this Node does not read the kind of TypeScript in the file. Node 20 reads none, and later ones only remove types. An
 * enum needs more than that, and so does an import of `./queue` or `./queue.js` that means `queue.ts`.
 */
function needsTsx(file: string, error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const code: unknown = Reflect.get(error, 'code');
  if (code === 'ERR_UNKNOWN_FILE_EXTENSION' || code === 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') return true;
  return (
    code === 'ERR_MODULE_NOT_FOUND' &&
    /^\.[cm]?ts$/.test(extname(file)) &&
    error.message.startsWith('Cannot find module')
  );
}
