import { type PostgresEngine, statement } from '../../engine/postgres/index.ts';
import type { JobStatus } from '../job.ts';
import { alone } from './runner.ts';

const PUBLISH = statement('queue.publish', 'select pawl.queue_publish($1::jsonb)::text as answer');
const SUBSCRIBE = statement(
  'queue.subscribe',
  'select pawl.queue_subscribe($1::text, $2::text, $3::text, $4::boolean) as changed',
);
const SUBSCRIPTIONS = statement(
  'queue.subscriptions',
  `
select d.name as queue, k.name as kind
from pawl.queue_subscription s
join pawl.queue_definition d on d.id = s.queue
join pawl.queue_kind k on k.id = s.kind
where s.topic = $1::text
order by d.name, k.name`,
);

const ALL = statement(
  'queue.topics',
  `
select t.name, coalesce((
  select pg_catalog.json_agg(pg_catalog.json_build_object('queue', d.name, 'kind', k.name) order by d.name, k.name)
  from pawl.queue_subscription s join pawl.queue_definition d on d.id = s.queue join pawl.queue_kind k on k.id = s.kind
  where s.topic = t.name), '[]') as subscriptions
from pawl.queue_topic t
order by t.name`,
);

/** A topic to which a queue is or was subscribed. */
export interface TopicRecord {
  readonly name: string;
  readonly subscriptions: readonly TopicSubscription[];
}

/** A queue, and the kind of the job that it gets. */
export interface TopicSubscription {
  readonly queue: string;
  readonly kind: string;
}

/** The job of one subscribed queue. */
export interface PublishedJob extends TopicSubscription {
  readonly id: string;
  readonly status: JobStatus;
  /** True if a unique job of this key existed already; `id` and `status` are those of that job. */
  readonly duplicate: boolean;
}

/** The statements of topics. One round trip each. */
export class PostgresQueueTopics {
  readonly #engine: PostgresEngine;

  constructor(engine: PostgresEngine) {
    this.#engine = engine;
  }

  async publish(request: object, tx: unknown): Promise<PublishedJob[]> {
    const value = JSON.stringify(request);
    const [row] =
      tx === undefined
        ? await alone(this.#engine).query<{ answer: string }>(PUBLISH, [value])
        : await this.#engine.callIn(tx, PUBLISH.text, value);
    return JSON.parse(String(row?.answer)) as PublishedJob[];
  }

  /** @returns whether something has changed; `busy` while publishes are open @throws NotFound */
  async subscribe(topic: string, { queue, kind }: TopicSubscription, isOn: boolean): Promise<boolean | 'busy'> {
    const [row] = await alone(this.#engine).query<{ changed: boolean | null }>(SUBSCRIBE, [topic, queue, kind, isOn]);
    return row?.changed ?? 'busy';
  }

  all(): Promise<TopicRecord[]> {
    return this.#engine.query<TopicRecord>(ALL);
  }

  list(topic: string): Promise<TopicSubscription[]> {
    return this.#engine.query<TopicSubscription>(SUBSCRIPTIONS, [topic]);
  }
}
