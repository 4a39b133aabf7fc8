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

/** What became of a change. `fields`: the row after it, or the one that has refused it. */
export interface ChangeOutcome {
  readonly isDone: boolean;
  readonly fields: Fields;
  /** The request was sent more than once: a row that refused it may have refused the second one, after the first was carried out. */
  readonly isRepeated: boolean;
}

/** The requests of an engine that rows are read and changed by. */
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

/** How often a decision is made again on a row that others change meanwhile. */
const MOST_TRIES = 40;

/**
 * The rows of a capability: reads, and conditional changes of those that decide. `E` has no bound: published declarations leave out
 * the requests of an engine, which are internal.
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

  /** Several changes together, or none. */
  async together(writes: readonly (PartialWrite | PartialCondition)[]): Promise<boolean> {
    return (await this.#requests.transact(writes, this.limits)).isDone;
  }

  /**
   * Decides on a row, and decides again when it was changed meanwhile.
   * @param decide  undefined: there is nothing to change @param advice  for the error, where it changes too often
   * @returns the row after the change; undefined when there was nothing to change. A change that was refused once it had been sent
   *   twice, and has nothing left to do, counts as made: the first request made it, or somebody else the same one.
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
