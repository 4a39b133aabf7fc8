import { InvalidInput } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { bool, checkOptions, integer, logger, optional, type TextKind, text } from '../../base/options/options.ts';
import { isReadableUrl } from '../database-url.ts';
import type { SchemaName } from './schema/name.ts';
import { schemaName } from './schema/option.ts';

/** How the Postgres engine connects. */
export interface PostgresOptions {
  /** Named prepared statements. Switch them off behind a pooler that does not keep them. Default true. */
  prepare?: boolean | undefined;
  /** A URL of the server itself, for LISTEN, if the first argument names a pooler. */
  directUrl?: string | undefined;
  /** The most connections of our own pool. Default 10, or the number of the given pool. */
  max?: number | undefined;
  /** The name in pg_stat_activity. Default `pawl`. */
  applicationName?: string | undefined;
  /** How many milliseconds to wait for a connection, also for a free one of the pool. Default 30,000. */
  connectTimeoutMs?: number | undefined;
  /** `false`: never LISTEN; workers find new work only by polling. Default true. */
  listen?: boolean | undefined;
  /** How many milliseconds `stop()` waits for running statements and transactions. Default 3,000. */
  stopTimeoutMs?: number | undefined;
  /**
   * The schema for Pawl's tables and functions. Default `pawl`. Two engines with different schemas in one database see no data of
   * each other: neither jobs, locks, actors, captures nor files. `migrate()` creates the schema.
   */
  schema?: string | undefined;
  /** Data folder of the embedded Postgres, kept after `stop()`. Default: a temporary folder. */
  data?: string | undefined;
  /** Any pino-shaped logger. Default: warnings and errors go to stderr. */
  logger?: Logger | undefined;
}

/** `PostgresOptions` with every default filled in. */
export interface ResolvedOptions {
  prepare: boolean;
  directUrl: string | undefined;
  max: number;
  applicationName: string;
  connectTimeoutMs: number;
  listen: boolean;
  stopTimeoutMs: number;
  schema: SchemaName;
  data: string | undefined;
  logger: Logger;
}

/** @throws InvalidInput on an unknown option, a value of the wrong kind, or a `directUrl` that cannot be read */
export function resolveOptions(options: PostgresOptions): ResolvedOptions {
  const resolved = checkOptions('postgres', options, {
    prepare: bool({ default: true }),
    directUrl: optional(text(URL_KIND)),
    max: integer({ min: 1, default: 10 }),
    applicationName: text({ min: 1, max: 63, default: 'pawl' }),
    connectTimeoutMs: integer({ min: 1, default: 30_000 }),
    listen: bool({ default: true }),
    stopTimeoutMs: integer({ min: 0, default: 3_000 }),
    schema: schemaName,
    data: optional(text({ min: 1 })),
    logger: logger(),
  });
  if (resolved.directUrl !== undefined) requireReadable('directUrl', resolved.directUrl);
  return resolved;
}

/**
 * @throws InvalidInput unless `url` is a postgres:// or postgresql:// URL. The message does not repeat the URL, because it may
 *   contain a password.
 */
export function requireUrl(url: string): void {
  if (url === '') {
    throw new InvalidInput('option "url" for postgres is an empty text; check that its environment variable is set', {
      field: 'url',
    });
  }
  checkOptions('postgres', { url }, { url: text(URL_KIND) });
  requireReadable('url', url);
}

function requireReadable(field: 'url' | 'directUrl', url: string): void {
  if (isReadableUrl(url)) return;
  throw new InvalidInput(
    `option "${field}" for postgres cannot be read: its port is no number up to 65535, or a character in its password, such as / or #, has to ` +
      'be escaped (encodeURIComponent); it is not shown here',
    { field },
  );
}

const URL_KIND: TextKind = {
  secret: true,
  pattern: [/^postgres(ql)?:\/\//, 'a URL such as postgres://user:password@host:5432/database'],
};
