import { Throttled } from '../../base/errors.ts';
import { sleep } from '../../base/time/clock.ts';
import type { Change, Fields } from './change.ts';
import type {
  CallLimits,
  Item,
  Key,
  Page,
  PartialCondition,
  PartialWrite,
  RequestTexts,
  WriteOutcome,
} from './client.ts';
import { fieldsOf, written } from './fields.ts';

/** The outcome of a change. `fields`: the row after the change, or the row that has refused it. */
export interface ChangeOutcome {
  readonly isDone: boolean;
  readonly fields: Fields;
  /** The request was sent more than once. If the row has refused it, the first request may have been carried out. */
  readonly isRepeated: boolean;
}

/** The requests of an engine that read and change rows. */
export interface RowRequests {
  get(key: Key, limits: CallLimits): Promise<Item | undefined>;
  update(
    key: Key,
    written: RequestTexts,
    returns: 'ALL_NEW' | 'UPDATED_OLD' | 'NONE',
    limits: CallLimits,
  ): Promise<WriteOutcome>;
  remove(key: Key, written: RequestTexts, limits: CallLimits): Promise<WriteOutcome>;
  transact(writes: readonly (PartialWrite | PartialCondition)[], limits: CallLimits): Promise<WriteOutcome>;
  page(pk: string, from: string, to: string, limit: number, limits: CallLimits, order?: 'newest first'): Promise<Page>;
}

/** How often a decision on a row is made again if others change the row meanwhile. */
const MOST_TRIES = 40;

/**
 * The rows of a capability: reads, and conditional changes of the rows that decide. `E` has no bound, since the requests of an
 * engine are internal, and published declarations leave them out.
 */
export class TableRows<E> {
  readonly engine: E;
  readonly limits: CallLimits;
  readonly #requests: RowRequests;

  constructor(engine: E & RowRequests, timeoutMs: number) {
    this.engine = engine;
    this.#requests = engine;
    this.limits = { timeoutMs };
  }

  get(key: Key): Promise<Item | undefined> {
    return this.#requests.get(key, this.limits);
  }

  page(pk: string, from: string, to: string, limit: number, order?: 'newest first'): Promise<Page> {
    return this.#requests.page(pk, from, to, limit, this.limits, order);
  }

  async range(pk: string, from: string, to: string, limit: number): Promise<readonly Item[]> {
    return (await this.page(pk, from, to, limit)).items;
  }

  /** Carries out a change, unless its condition does not hold. */
  async change(key: Key, change: Change): Promise<ChangeOutcome> {
    const { isDone, item, isRepeated } = await this.#requests.update(key, written(change), 'ALL_NEW', this.limits);
    return { isDone, fields: fieldsOf(item), isRepeated };
  }

  /** Carries out several changes together, or none. */
  async together(writes: readonly (PartialWrite | PartialCondition)[]): Promise<boolean> {
    return (await this.#requests.transact(writes, this.limits)).isDone;
  }

  /**
   * Decides on a row, and decides again if the row was changed meanwhile.
   * @param decide  returns undefined if there is nothing to change @param advice  for the error, if the row changes too often
   * @returns the row after the change; undefined if there was nothing to change. If a change was sent twice and refused, and then
   *   nothing is left to change, it counts as made: its first request has made it, or another client has made the same change.
   */
  async decide(
    key: Key,
    decide: (fields: Fields) => Change | undefined,
    advice: string = 'try again',
  ): Promise<Fields | undefined> {
    let fields = fieldsOf(await this.get(key));
    let mayBeMade = false;
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const change = decide(fields);
      if (change === undefined) return mayBeMade ? fields : undefined;
      const outcome = await this.change(key, change);
      if (outcome.isDone) return outcome.fields;
      ({ fields } = outcome);
      mayBeMade ||= outcome.isRepeated;
      await sleep(Math.random() * 5 * tries);
    }
    throw new Throttled(`the row "${key.sk}" of "${key.pk}" changes too often; ${advice}`);
  }
}
