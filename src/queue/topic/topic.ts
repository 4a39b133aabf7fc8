import { LockNotAvailable } from '../../base/errors.ts';
import { checkOptions } from '../../base/options/options.ts';
import { toJson } from '../../base/storable.ts';
import { moment, sleep, waitedFor } from '../../base/time/clock.ts';
import {
  type OpenTransaction,
  openTransaction,
  type PostgresEngine,
  requireEngine,
} from '../../engine/postgres/index.ts';
import { type JobOptions, jobShape, refuseTwoTimes, requestOptions } from '../job-options.ts';
import { label } from '../label.ts';
import { PostgresQueueTopics, type PublishedJob, type TopicSubscription } from '../postgres/topics.ts';

export interface PublishOptions extends JobOptions {
  /** Your own transaction, of any driver: the jobs exist if and only if the transaction commits. */
  readonly tx?: OpenTransaction | undefined;
}

const shape = { ...jobShape, tx: openTransaction };

/** The longest wait for publishers in open transactions. */
const PATIENCE_MS = 5000;

/**
 * A topic: each published payload becomes a job in each subscribed queue. Sends nothing until its first use.
 * @param name  1 to 100 characters; the same name is the same topic in every process @throws InvalidInput
 */
export function createTopic(engine: PostgresEngine, name: string): Topic {
  requireEngine('createTopic', engine);
  return new Topic(engine, checkOptions('createTopic', { name }, { name: label }).name);
}

/** Publishes payloads to queues that the publishing program need not know. Subscriptions are rows in the database. */
export class Topic {
  readonly name: string;
  readonly #store: PostgresQueueTopics;

  /** @internal */
  constructor(engine: PostgresEngine, name: string) {
    this.name = name;
    this.#store = new PostgresQueueTopics(engine);
  }

  /**
   * Adds a job to each queue that is subscribed when your transaction commits: all of them or none. One round trip. The schema of
   * each kind checks the payload when its job runs.
   * @returns the jobs, by queue; empty if no queue is subscribed
   * @throws InvalidInput  an option is bad, or a subscribed kind needs a key; nothing was written
   * @throws SerializationFailed  in a transaction above read committed, a subscription has changed since the transaction began
   */
  async publish(payload: unknown, options: PublishOptions = {}): Promise<PublishedJob[]> {
    const given = checkOptions('publish', options, shape);
    refuseTwoTimes(given);
    const json: unknown = JSON.parse(toJson(payload, 'payload', 'payload'));
    return this.#store.publish({ ...requestOptions(given), topic: this.name, payload: json }, given.tx);
  }

  /**
   * From now on each publish adds a job of this kind to this queue, which must be registered. Safe to call at every start.
   * @returns true if it was not subscribed before @throws NotFound  no such queue or kind
   * @throws LockNotAvailable  a publish was open for more than 5 s; nothing was changed
   */
  subscribe(queue: string, kind: string): Promise<boolean> {
    return this.#change({ queue, kind }, true);
  }

  /** Ends a subscription; the jobs that it has added stay. @returns whether there was one @throws as `subscribe` */
  unsubscribe(queue: string, kind: string): Promise<boolean> {
    return this.#change({ queue, kind }, false);
  }

  /** The subscribed queues, by name. */
  subscriptions(): Promise<TopicSubscription[]> {
    return this.#store.list(this.name);
  }

  async #change(subscription: TopicSubscription, isOn: boolean): Promise<boolean> {
    const start = moment();
    for (;;) {
      const changed = await this.#store.subscribe(this.name, subscription, isOn);
      if (changed !== 'busy') return changed;
      if (waitedFor(start) > PATIENCE_MS) {
        throw new LockNotAvailable(
          `the subscriptions of topic "${this.name}" cannot change now: a transaction that has published to it is open; nothing was changed; try again when it has ended`,
        );
      }
      await sleep(25);
    }
  }
}
