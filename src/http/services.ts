import { type ActorAdmin, createActorAdmin } from '../actor/index.ts';
import type { PostgresEngine } from '../engine/postgres/index.ts';
import { createLocks, type Locks } from '../lock/index.ts';
import { createQueueAdmin, type QueueAdmin } from '../queue/index.ts';
import { Authenticator } from './auth.ts';
import { BulkActions } from './bulk.ts';
import { Live } from './live.ts';
import { Metrics } from './metrics.ts';
import type { HttpSettings } from './options.ts';
import { HttpStore } from './postgres.ts';
import { BoundedEngine } from './postgres-bounded.ts';
import { Redaction } from './redact.ts';

/** Everything the routes work with. What only reads goes through an engine that limits every statement. */
export class Services {
  readonly settings: HttpSettings;
  readonly engine: PostgresEngine;
  readonly bounded: PostgresEngine;
  readonly store: HttpStore;
  readonly queues: { readonly reads: QueueAdmin; readonly writes: QueueAdmin };
  readonly actors: { readonly reads: ActorAdmin; readonly writes: ActorAdmin };
  readonly auth: Authenticator;
  readonly live: Live;
  readonly bulk: BulkActions;
  readonly redaction: Redaction;
  readonly metrics: Metrics = new Metrics();
  readonly startedAt: Date = new Date();

  constructor(engine: PostgresEngine, settings: HttpSettings) {
    this.settings = settings;
    this.engine = engine;
    this.bounded = new BoundedEngine(engine, settings.statementTimeout);
    this.store = new HttpStore(this.bounded, engine);
    this.queues = { reads: createQueueAdmin(this.bounded), writes: createQueueAdmin(engine) };
    this.actors = { reads: createActorAdmin(this.bounded), writes: createActorAdmin(engine) };
    this.auth = new Authenticator(settings);
    this.live = new Live(() => this.store.snapshot(), settings.live, engine.options.logger);
    this.redaction = new Redaction(settings.redact);
    this.bulk = new BulkActions(this.queues.writes);
  }

  /** The locks of a namespace, to look at. */
  locks(namespace: string): Locks {
    return createLocks(this.bounded, { namespace });
  }

  /** The locks of a namespace, to break. */
  locksToChange(namespace: string): Locks {
    return createLocks(this.engine, { namespace });
  }
}
