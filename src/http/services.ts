import { ActorAdmin, type Actors, createActorAdmin, type WorkedTurn } from '../actor/index.ts';
import { Conflict } from '../base/errors.ts';
import { type Capture, type CaptureAdmin, createCaptureAdmin } from '../capture/index.ts';
import type { DynamoEngine } from '../engine/dynamodb/index.ts';
import type { PostgresEngine } from '../engine/postgres/index.ts';
import { createFileAdmin, type FileAdmin, type Files } from '../files/index.ts';
import { createLocks, type Locks, RemoteLocks } from '../lock/index.ts';
import type { AnyQueueAdmin, QueueRecord } from '../queue/index.ts';
import { Authenticator } from './auth/authenticator.ts';
import { Effects, type Writers } from './auth/effects.ts';
import type { Principal } from './auth/permission.ts';
import { backendOf } from './backend.ts';
import { BulkActions } from './bulk/actions.ts';
import { Feeds } from './live/feed.ts';
import { JobWatch } from './live/job-watch.ts';
import { Live } from './live/live.ts';
import { Metrics } from './live/metrics.ts';
import { Streams } from './live/streams.ts';
import type { HttpSettings } from './options.ts';
import type { Program } from './program.ts';
import { HttpRefusal } from './protocol/failure.ts';
import { Redaction } from './redaction/redaction.ts';
import type { HttpStore } from './store/store.ts';

/** Declarations of queues change only with deployments; the live picture has the content of queues. */
const RECORDS_MS = 5000;

/** The objects that the routes use. Reads go through an engine that limits every statement. */
export class Services {
  readonly settings: HttpSettings;
  readonly engine: PostgresEngine;
  readonly bounded: PostgresEngine;
  /** Undefined on Postgres. */
  readonly table: DynamoEngine | undefined;
  readonly store: HttpStore;
  readonly queues: { readonly reads: AnyQueueAdmin };
  readonly actors: { readonly reads: ActorAdmin };
  readonly captures: { readonly reads: CaptureAdmin };
  readonly files: FileAdmin;
  readonly auth: Authenticator;
  readonly jobs: JobWatch;
  readonly feeds: Feeds;
  readonly live: Live;
  readonly streams: Streams;
  readonly bulk: BulkActions;
  readonly redaction: Redaction;
  readonly metrics: Metrics = new Metrics();
  readonly startedAt: Date = new Date();
  readonly #writers: Writers;
  #records: { readonly at: number; readonly list: Promise<QueueRecord[]> } | undefined;

  constructor(given: PostgresEngine | DynamoEngine, settings: HttpSettings) {
    const ground = backendOf(given, settings);
    const { engine, writes: queues } = ground;
    this.settings = settings;
    this.engine = engine;
    this.bounded = ground.bounded;
    this.table = ground.table;
    this.store = ground.store;
    this.queues = { reads: ground.reads };
    this.actors = { reads: createActorAdmin(this.table ?? this.bounded) };
    this.captures = { reads: createCaptureAdmin(this.bounded) };
    this.files = createFileAdmin(this.bounded);
    this.auth = new Authenticator(settings, this.store.sessions, engine.options.logger);
    this.jobs = new JobWatch(this.store.queues, engine.options.logger);
    this.feeds = new Feeds(this.store.history, engine.options.logger);
    this.live = new Live(() => this.store.live.snapshot(), settings.live, engine.options.logger);
    this.streams = new Streams(settings.streams);
    this.redaction = new Redaction(settings.redact, engine.options.logger);
    const { logger } = engine.options;
    const parts = { store: this.store.bulk, admin: queues, logger, onChange: () => this.live.expire() };
    // On a table, another process never leaves a bulk action behind.
    this.bulk = new BulkActions(parts, settings.readOnly || this.table !== undefined);
    this.#writers = {
      queues,
      actors: new ActorOperator(this.table ?? engine, (type) => this.#programOf(type)),
      captures: createCaptureAdmin(engine),
      bulk: this.bulk,
      jobs: this.store.jobs,
      locks: (namespace) => createLocks(engine, { namespace }),
      remoteLocks: (namespace) => new RemoteLocks(engine, namespace),
      files: (namespace) => this.#openFiles(namespace),
      declared: (entity) => this.needDeclared(entity),
    };
  }

  /** The changes that this caller can make: the only way for a route to change anything. */
  effectsOf(who: Principal): Effects {
    return new Effects(this.#writers, who);
  }

  /** The declared queues, as they were read a moment ago. If one of these names is missing, they are read again. */
  async records(names: readonly string[]): Promise<QueueRecord[]> {
    if (this.#records !== undefined && performance.now() - this.#records.at < RECORDS_MS) {
      const known = new Set((await this.#records.list.catch(() => [])).map(({ name }) => name));
      if (names.every((name) => known.has(name))) return this.#records.list;
    }
    this.#records = { at: performance.now(), list: this.queues.reads.list() };
    return this.#records.list;
  }

  /** Called after a change: the next request sees it. */
  expire(): void {
    this.#records = undefined;
    this.live.expire();
  }

  /** The locks of a namespace, for reading. */
  locks(namespace: string): Locks {
    return createLocks(this.bounded, { namespace });
  }

  /** The current parts of the user's program. */
  get program(): Program {
    const { files, captures, actors, queues, dev } = this.settings;
    const stage = dev?.();
    return {
      files: [...files, ...(stage?.files ?? [])],
      captures: [...captures, ...(stage?.captures ?? [])],
      actors: [...actors, ...(stage?.actors ?? [])],
      queues: [...queues, ...(stage?.queues ?? [])],
    };
  }

  /** Whether turns of a type of actors can be run here. */
  hasProgramOf(type: string): boolean {
    return this.#programOf(type) !== undefined;
  }

  #programOf(type: string): Actors | undefined {
    return this.program.actors.find((one) => one.typeNames.includes(type));
  }

  /** Runs one turn of an actor. @throws HttpRefusal  not_supported: this server has no program of this type @throws Conflict */
  async workOn(id: string, type: string): Promise<WorkedTurn> {
    const program = this.#programOf(type);
    if (program === undefined)
      throw new HttpRefusal(
        'not_supported',
        `this server was not given the program of actors of type "${type}": createHttp({ actors })`,
      );
    const turn = await program.work(id);
    if (turn !== undefined) return turn;
    throw new Conflict(`a turn of actor ${id} is running elsewhere`);
  }

  /** Whether this server reads the bytes of a namespace. */
  hasFiles(namespace: string): boolean {
    return this.program.files.some((one) => one.namespace === namespace);
  }

  /**
   * The files of a namespace, with their bytes.
   * @throws HttpRefusal  not_supported: this server does not have the store of the namespace
   */
  #openFiles(namespace: string): Files {
    const found = this.program.files.find((one) => one.namespace === namespace);
    if (found !== undefined) return found;
    const of = namespace === '' ? 'files outside of namespaces' : `files of the namespace "${namespace}"`;
    throw new HttpRefusal('not_supported', `this server was given no content store for ${of}: createHttp({ files })`);
  }

  /** A capture as the program declares it, if this server was given the declaration. */
  declared(entity: string): Capture | undefined {
    return this.program.captures.find((one) => one.entity === entity);
  }

  /** @throws HttpRefusal  not_supported */
  needDeclared(entity: string): Capture {
    const found = this.declared(entity);
    if (found !== undefined) return found;
    throw new HttpRefusal(
      'not_supported',
      `this server was not given the declaration of the capture "${entity}": createHttp({ captures })`,
    );
  }
}

/** If this server has the program of an actor's type, the program checks the fields of a move. */
class ActorOperator extends ActorAdmin {
  readonly #programOf: (type: string) => Actors | undefined;

  constructor(engine: PostgresEngine | DynamoEngine, programOf: (type: string) => Actors | undefined) {
    super(engine);
    this.#programOf = programOf;
  }

  override async readMoved(...given: Parameters<ActorAdmin['readMoved']>): ReturnType<ActorAdmin['readMoved']> {
    const program = this.#programOf(given[0].type);
    return program === undefined ? super.readMoved(...given) : program.readMoved(...given);
  }
}
