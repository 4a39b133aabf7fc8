import { Conflict, InvalidInput, NotFound } from '../base/errors.ts';
import { Lazy } from '../base/lazy.ts';
import { checkOptions, integer, text } from '../base/options/options.ts';
import { show } from '../base/options/refusal.ts';
import { validate } from '../base/options/schema.ts';
import { isObject } from '../base/options/shape.ts';
import { DynamoEngine } from '../engine/dynamodb/index.ts';
import { type PostgresEngine, requireEngine } from '../engine/postgres/index.ts';
import type { ActorBackend } from './backend.ts';
import type { ActorDefinition, AnyActorDefinition } from './definition.ts';
import { dynamoBackend } from './dynamodb/backend.ts';
import { ActorAdmin } from './operate/admin.ts';
import type { IncrOptions, TxOptions } from './operate/options.ts';
import { draw } from './operate/queries.ts';
import { asFields, fieldsOf, readKey, requireFields, requireSemaphore, unknownName } from './option-checks.ts';
import { postgresBackend } from './postgres/backend.ts';
import type { ActorRecord } from './record.ts';
import { holding, type RunOptions, readRunOptions, requireNames, roomFor } from './run-options.ts';
import { type ActorHandle, type ActorTarget, idOf } from './target.ts';
import type { TurnOwner } from './turn/turn-requests.ts';
import { Dispatcher } from './work/dispatcher.ts';
import { runManualTurn, type WorkedTurn } from './work/manual-turn.ts';
import type { TurnStore, WorkPorts } from './work/ports.ts';

export interface CreateOptions extends TxOptions {
  /** The parent: it cannot end before this actor is final. The end of its last child wakes it. */
  readonly parent?: ActorTarget<never> | undefined;
  /** At most one actor of this type and key exists, ever: a second `create` returns the first one. 1 to 1000 bytes. */
  readonly key?: string | undefined;
}

/** The result of `create`. */
export interface CreatedActor<S extends string = string> extends ActorHandle<S> {
  /** False if an actor with this key existed already. */
  readonly created: boolean;
}

const findShape = { key: text({ min: 1 }) };

/** Options of actors on DynamoDB. */
export interface DynamoActorsOptions {
  /**
   * The number of parts of each type, by which due actors are found. The first program that declares the type fixes it. 1 to 64,
   * default 1.
   */
  readonly shards?: number | undefined;
}

const dynamoShape = { shards: integer({ min: 1, max: 64, default: 1 }) };

/**
 * The same on DynamoDB: see docs/dynamodb.md for the differences.
 * @throws NotSupported  a type declares a feature that DynamoDB does not have
 */
export function createActors(
  engine: DynamoEngine,
  definitions: readonly AnyActorDefinition[],
  options?: DynamoActorsOptions,
): Actors;
/**
 * The actors of these types on your database. Sends nothing until its first use, which registers the types in the database.
 * @throws InvalidInput  two types have the same name, or a value is no definition
 */
export function createActors(engine: PostgresEngine, definitions: readonly AnyActorDefinition[]): Actors;
export function createActors(
  engine: PostgresEngine | DynamoEngine,
  definitions: readonly AnyActorDefinition[],
  options: DynamoActorsOptions = {},
): Actors {
  if (!(engine instanceof DynamoEngine)) requireEngine('createActors', engine);
  if (!Array.isArray(definitions)) {
    throw new InvalidInput(
      `createActors takes a list of types: createActors(engine, [Server]), but was given ${show(definitions)}`,
      {
        field: 'definitions',
      },
    );
  }
  const all = [...byName(definitions as unknown as readonly ActorDefinition[]).values()];
  if (!(engine instanceof DynamoEngine)) return new Actors(postgresBackend(engine), all);
  const { shards } = checkOptions('createActors', options, dynamoShape);
  return new Actors(dynamoBackend(engine, all, shards), all);
}

/** Actors with the program that runs them. */
export class Actors extends ActorAdmin {
  readonly #backend: ActorBackend;
  readonly #definitions: ReadonlyMap<string, ActorDefinition>;
  readonly #registered: Lazy<ReadonlyMap<number, ActorDefinition>> = new Lazy(() => this.#register());
  #byHand: WorkPorts | undefined;

  /** @internal */
  constructor(backend: ActorBackend, definitions: readonly ActorDefinition[]) {
    super(backend);
    this.#backend = backend;
    this.#definitions = byName(definitions);
  }

  /**
   * Registers the types in the database, so that SQL can create their actors. The first use does this, too.
   * @throws SchemaMismatch  the database has no Pawl schema, or an older one: run `pawl migrate`
   */
  async register(): Promise<void> {
    await this.#registered.get();
  }

  /**
   * Creates an actor, in your transaction or its own. Its first turn begins at once after the commit, and never without it.
   * @throws InvalidInput  the schema refused the fields; nothing was written
   * @throws NotFound  `createActors` was not given the type, or there is no such parent @throws Conflict  the parent is final
   */
  async create<F, S extends string, In>(
    definition: ActorDefinition<F, S, In>,
    fields: NoInfer<In>,
    options: CreateOptions = {},
  ): Promise<CreatedActor<S>> {
    requireDefinition('create', definition, this.#definitions.keys());
    const { tx, parent, ...rest } = options;
    const key = readKey(rest);
    const of = parent === undefined ? undefined : idOf(parent);
    await this.#registered.get();
    const { fields: json, ...made } = await this.#readNew(definition.name, fields);
    const head = { ...made, key, parent: of };
    const { id, created } = await this.store.create(head, json, tx);
    return { id, type: definition.name, created };
  }

  /** The actor of this type with this key; undefined if there is none. */
  async find<F, S extends string, In>(
    definition: ActorDefinition<F, S, In>,
    key: string,
  ): Promise<ActorHandle<S> | undefined> {
    requireDefinition('find', definition, this.#definitions.keys());
    checkOptions('find', { key }, findShape);
    const id = await this.reader.find(definition.name, key);
    return id === undefined ? undefined : { id, type: definition.name };
  }

  override async incr<S extends string>(
    target: ActorTarget<S>,
    semaphore: NoInfer<S>,
    options: IncrOptions = {},
  ): Promise<boolean> {
    idOf(target);
    const definition = typeof target === 'string' ? undefined : this.#definitions.get(target.type);
    if (definition !== undefined) requireSemaphore(definition.name, semaphore, definition.semaphores);
    return super.incr(target, semaphore, options);
  }

  /** @internal */
  override async readMoved(
    record: ActorRecord,
    patch: Readonly<Record<string, unknown>> | undefined,
  ): Promise<{ readonly fields: string | undefined; readonly version: number | undefined }> {
    const known = this.#definitions.get(record.type);
    if (known === undefined || record.version > known.version) return super.readMoved(record, patch);
    const isOld = record.version < known.version;
    if (patch === undefined && !isOld) return { fields: undefined, version: undefined };
    const stored = asFields(record.fields);
    const migrated = isOld && known.migrate !== undefined ? known.migrate(stored, record.version) : stored;
    const valid = asFields(await validate(known.schema, { ...asFields(migrated), ...patch }, 'fields'));
    requireFields(known.name, patch ?? {}, valid);
    return { fields: fieldsOf(valid), version: known.version };
  }

  /** The types that were declared, by name. */
  get typeNames(): readonly string[] {
    return [...this.#definitions.keys()];
  }

  /**
   * Runs one turn by hand, whether the actor is due or not, paused or not, as in a REPL.
   * @returns the outcome of the turn; undefined if another process runs a turn of the actor now
   * @throws NotFound, Conflict  the actor is final
   */
  async work(target: ActorTarget<never>): Promise<WorkedTurn | undefined> {
    const types = await this.#types(undefined);
    this.#byHand ??= this.#backend.byHand(20_000);
    return runManualTurn({
      ...this.#byHand,
      owner: this.#ownerOf(this.store),
      types,
      actor: idOf(target),
      show: () => this.reader.show(idOf(target)),
    });
  }

  /** Starts to run turns in this process, as actors become due, until it is stopped. @throws InvalidInput */
  run(options: RunOptions = {}): Dispatcher {
    const given = readRunOptions(options);
    const { lease, concurrency, poll, types, channels, onBlocked, signal: stop } = given;
    for (const name of types ?? []) {
      if (!this.#definitions.has(name)) throw unknownName('actor type', name, [...this.#definitions.keys()], 'types');
    }
    requireNames(channels);
    const holds = [...this.#definitions.values()].filter(({ name }) => types?.includes(name) ?? true).flatMap(holding);
    return new Dispatcher({
      engine: this.store.engine,
      ports: (leaseMs) => this.#backend.ports(leaseMs),
      reader: this.#backend.notices,
      owner: (store) => this.#ownerOf(store),
      register: () => this.#types(types),
      settings: { concurrency: roomFor(concurrency, holds, this.#backend.connections), leaseMs: lease, pollMs: poll },
      channels,
      onBlocked,
      logger: this.store.engine.options.logger,
      signal: stop,
    });
  }

  /** The diagram as declared in this program. `diagram` asks the database, and adds how many actors are in each state. */
  machineDiagram(definition: AnyActorDefinition, format: 'mermaid' | 'svg' = 'mermaid'): string {
    return draw(format, definition.machine, {});
  }

  #ownerOf(store: TurnStore): TurnOwner {
    return {
      allocate: () => store.allocate(),
      readNew: (type, fields) => this.#readNew(type, fields),
      recall: (actor, visit, key) => store.recall(actor, visit, key),
      remember: (token, visit, key, result) => store.remember(token, visit, key, result),
      messages: (actor, which) => store.messages(actor, which),
      children: (actor) => store.children(actor),
      guard: (token, tx) => store.guard(token, tx),
    };
  }

  async #readNew(name: string, fields: unknown): Promise<{ type: string; version: number; fields: string }> {
    const known = this.#definitions.get(name);
    if (known === undefined) {
      const names = [...this.#definitions.keys()];
      throw new NotFound(`actor type "${name}" was not given to createActors; it was given ${names.join(', ')}`);
    }
    if (!isObject(fields))
      throw new InvalidInput('the fields of an actor are an object; give {} if it has none', { field: 'fields' });
    const valid = asFields(await validate(known.schema, fields, 'fields'));
    requireFields(known.name, fields, valid);
    return { type: known.name, version: known.version, fields: fieldsOf(valid) };
  }

  /**
   * Writes the missing rows in the indexes of fields. If an open transaction prevents that, the next `list({ where })` writes
   * them.
   */
  async #fillIndexes(): Promise<void> {
    for (const { name, indexes } of this.#definitions.values()) {
      if (indexes.length > 0) await this.fillIndex(name);
    }
  }

  async #types(only: readonly string[] | undefined): Promise<ReadonlyMap<number, ActorDefinition>> {
    const all = await this.#registered.get();
    return new Map([...all].filter(([, { name }]) => only?.includes(name) ?? true));
  }

  async #register(): Promise<ReadonlyMap<number, ActorDefinition>> {
    const types = await this.store.register([...this.#definitions.values()]);
    await this.#fillIndexes();
    return types;
  }
}

function byName(definitions: readonly ActorDefinition[]): ReadonlyMap<string, ActorDefinition> {
  const all = new Map<string, ActorDefinition>();
  for (const definition of definitions) {
    if (!isObject(definition) || !(definition.states instanceof Map)) {
      throw new InvalidInput('createActors takes an engine and a list of actor types, which actor() returns', {
        field: 'definitions',
      });
    }
    if (all.has(definition.name))
      throw new Conflict(`there are two actor types named "${definition.name}"; the name is the identity`);
    all.set(definition.name, definition);
  }
  if (all.size === 0)
    throw new InvalidInput('createActors needs at least one type: createActors(engine, [Server])', {
      field: 'definitions',
    });
  return all;
}

function requireDefinition(what: string, definition: unknown, known: Iterable<string>): void {
  if (isObject(definition) && typeof definition['name'] === 'string') return;
  throw new InvalidInput(
    `${what}() takes an actor type that actor() returned, not its name: ${what}(Server, …), but was given ${show(definition)}; ` +
      `createActors was given ${[...known].join(', ')}`,
    { field: 'definition' },
  );
}
