import { parseArgs } from 'node:util';

/** Where the queue and the spreadsheets are. */
export type Place =
  /** DATABASE_URL */
  | { readonly engine: 'postgres'; readonly url: string }
  /** SPREADSHEETS_TABLE: Pawl's table; the spreadsheets have one of their own next to it. Default pawl */
  | { readonly engine: 'dynamodb'; readonly table: string };

/** What the processes of this example read from the environment. */
export interface Settings {
  /** --engine postgres or --engine dynamodb, or SPREADSHEETS_ENGINE. Default postgres */
  readonly place: Place;
  /** SPREADSHEETS_DIR: where the files are; the front end and all back ends see the same folder. Default ./spreadsheets */
  readonly folder: string;
}

export interface FrontEndSettings extends Settings {
  /** SPREADSHEETS_SECRET: signs the tokens; 32 characters or more. */
  readonly secret: string;
  /** PORT. Default 3000; 0 takes a free one. */
  readonly port: number;
  /** SPREADSHEETS_MAX_BODY: the largest body taken, in bytes. Default 1 MiB. */
  readonly maxBody: number;
  /** SPREADSHEETS_GATHER: for how long the updates of one spreadsheet are gathered into one file, in ms. Default 1000. */
  readonly gatherMs: number;
}

export interface BackEndSettings extends Settings {
  /** SPREADSHEETS_CONCURRENCY: files written at the same time. Default 4. */
  readonly concurrency: number;
  /** SPREADSHEETS_LEASE: how long a dead back end keeps its work on DynamoDB, in ms. Default 5000. */
  readonly leaseMs: number;
  /** SPREADSHEETS_PAUSE: a pause in the middle of each file, in ms, to see what a kill does. Default 0. */
  readonly pauseMs: number;
}

type Environment = Readonly<Record<string, string | undefined>>;

export function readFrontEnd(env: Environment = process.env): FrontEndSettings {
  return {
    ...readSettings(env),
    secret: readSecret(env),
    port: whole(env, 'PORT', 3000, 0, 65_535),
    maxBody: whole(env, 'SPREADSHEETS_MAX_BODY', 1024 * 1024, 1, 64 * 1024 * 1024),
    gatherMs: whole(env, 'SPREADSHEETS_GATHER', 1000, 0, 60_000),
  };
}

export function readBackEnd(env: Environment = process.env): BackEndSettings {
  return {
    ...readSettings(env),
    concurrency: whole(env, 'SPREADSHEETS_CONCURRENCY', 4, 1, 100),
    leaseMs: whole(env, 'SPREADSHEETS_LEASE', 5000, 1000, 600_000),
    pauseMs: whole(env, 'SPREADSHEETS_PAUSE', 0, 0, 600_000),
  };
}

/** @throws Error  a short secret can be guessed */
export function readSecret(env: Environment = process.env): string {
  const secret = env['SPREADSHEETS_SECRET'] ?? '';
  if (secret.length < 32) {
    throw new Error(
      'SPREADSHEETS_SECRET must have 32 characters or more: export SPREADSHEETS_SECRET=$(openssl rand -hex 32)',
    );
  }
  return secret;
}

function readSettings(env: Environment): Settings {
  const { values } = parseArgs({ options: { engine: { type: 'string' } } });
  return { place: readPlace(values.engine, env), folder: env['SPREADSHEETS_DIR'] || './spreadsheets' };
}

/** @param option  that of the command line @throws Error  there is no such engine, or it is not said where it is */
export function readPlace(option: string | undefined, env: Environment = process.env): Place {
  const engine = option ?? env['SPREADSHEETS_ENGINE'] ?? 'postgres';
  if (engine === 'dynamodb') return { engine, table: env['SPREADSHEETS_TABLE'] || 'pawl' };
  if (engine !== 'postgres') throw new Error(`--engine must be postgres or dynamodb, not "${engine}"`);
  const url = env['DATABASE_URL'];
  if (!url) throw new Error('DATABASE_URL is not set: export DATABASE_URL=postgres://user:password@host/database');
  return { engine, url };
}

function whole(env: Environment, name: string, otherwise: number, min: number, max: number): number {
  const given = env[name];
  if (given === undefined || given === '') return otherwise;
  const value = Number(given);
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw new Error(`${name} must be a whole number from ${min} to ${max}, not "${given}"`);
}
