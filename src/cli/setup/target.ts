import { InvalidInput } from '../../base/errors.ts';
import { isReadableUrl } from '../../engine/database-url.ts';
import { EXIT, Failure } from '../output/failure.ts';
import { type Config, loadConfig } from './config.ts';
import type { Globals } from './globals.ts';

/** The database of a command, and the setting that named it. */
export interface Target {
  readonly url: string;
  readonly directUrl: string | undefined;
  readonly prepare: boolean | undefined;
  /** Undefined: `pawl`. */
  readonly schema: string | undefined;
  /** `--url`, `PAWL_URL`, `DATABASE_URL` or the config file's name. */
  readonly origin: string;
}

/**
 * Reads the option, the environment and the config file, in this order. Loads the config file only if it is named or needed.
 * @returns undefined if none of them names a database
 */
export async function findTarget(globals: Globals, loaded?: Config): Promise<Target | undefined> {
  const { url: option, config: file } = globals;
  const [origin, url] = [
    ['--url', option],
    ['PAWL_URL', process.env['PAWL_URL']],
    ['DATABASE_URL', process.env['DATABASE_URL']],
  ].find(([, value]) => value !== undefined && value !== '') ?? [undefined, undefined];
  const config = loaded ?? (url === undefined || file !== undefined ? await loadConfig(file) : undefined);
  // They describe the way to the file's own database, if it names one.
  const isOther = url !== undefined && config?.url !== undefined && config.url !== url;
  const { directUrl, prepare } = isOther ? {} : (config ?? {});
  const schema = globals.schema ?? (process.env['PAWL_SCHEMA'] || config?.schema);
  const rest = { directUrl, prepare, schema };
  if (origin !== undefined && url !== undefined) return check({ url, origin, ...rest });
  return config?.url === undefined ? undefined : check({ url: config.url, origin: config.file, ...rest });
}

/** The same, but one of them must name a database. @throws Failure (usage) with the ways to do so */
export async function needTarget(globals: Globals, loaded?: Config): Promise<Target> {
  const target = await findTarget(globals, loaded);
  if (target !== undefined) return target;
  throw new Failure('no database was named: there is no --url, PAWL_URL, DATABASE_URL or url in a pawl.config file', {
    exit: EXIT.usage,
    next: 'add --url postgres://user:password@host:5432/database, or try everything out with pawl dev',
  });
}

function check(target: Target): Target {
  const { url, origin } = target;
  if (/^postgres(ql)?:/i.test(url) && isReadableUrl(url)) return target;
  // The text may hold a password, so the message does not repeat it.
  throw new InvalidInput(
    `${origin} is no URL of a Postgres database, such as postgres://user:password@host:5432/database`,
    { field: 'url' },
  );
}
