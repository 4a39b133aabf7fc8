import { NotSupported } from '../../base/errors.ts';
import type { DynamoEngine } from '../../engine/dynamodb/index.ts';
import { PostgresEngine, resolveOptions } from '../../engine/postgres/index.ts';

/**
 * If this surface is on a table of DynamoDB, this engine replaces the missing database: a request that needs one is refused with
 * the reason, and never answered with an empty result.
 */
export class AbsentDatabase extends PostgresEngine {
  readonly #reason: string;

  constructor({ table, logger }: DynamoEngine) {
    super(undefined, resolveOptions({ logger }));
    this.#reason = `this server is on the table "${table}" of DynamoDB, where there are queues and actors alone: this needs Postgres`;
  }

  override query(): Promise<never> {
    return this.#refuse();
  }

  override connect(): Promise<never> {
    return this.#refuse();
  }

  override connectReserved(): Promise<never> {
    return this.#refuse();
  }

  override listen(): Promise<never> {
    return this.#refuse();
  }

  override describe(): Promise<never> {
    return this.#refuse();
  }

  #refuse(): Promise<never> {
    return Promise.reject(new NotSupported(this.#reason));
  }
}
