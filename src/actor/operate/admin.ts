import { Conflict, InvalidInput, LockNotAvailable } from '../../base/errors.ts';
import { checkOptions, integer, optional, text } from '../../base/options/options.ts';
import type { StandardSchemaV1 } from '../../base/options/schema.ts';
import { toJson } from '../../base/storable.ts';
import { DynamoEngine } from '../../engine/dynamodb/index.ts';
import { openTransaction, type PostgresEngine, requireEngine } from '../../engine/postgres/index.ts';
import type { ActorBackend } from '../backend.ts';
import { asFields, fieldsOf, requireMessageName, requireSemaphore, unknownName } from '../option-checks.ts';
import { type PageChoice, type PageOptions, readPage, readPageChoice } from '../pages/page.ts';
import type { ActorRecord } from '../record.ts';
import { type ActorTarget, idOf } from '../target.ts';
import { type AnswerOf, Asker, type AskOptions } from './asker.ts';
import type { IncrOptions, MoveOptions, PauseTarget, TxOptions } from './options.ts';
import { ActorQueries, pageId } from './queries.ts';

const moveShape = { state: text({ min: 1 }), reason: text({ min: 1, max: 500 }) };
/** How often a move is repeated because turns came in between. */
const MOVES = 20;
const incrShape = { n: integer({ min: 1, max: 1_000_000, default: 1 }) };
const pauseShape = { type: text({ min: 1 }), state: optional(text({ min: 1 })) };

/** Operations on actors without the program that runs them: for operators, scripts and the command line. */
export class ActorAdmin extends ActorQueries {
  readonly #asker: Asker;

  /** @internal */
  constructor(on: PostgresEngine | DynamoEngine | ActorBackend) {
    super(on);
    this.#asker = new Asker(this.operator);
  }

  /**
   * Raises a semaphore: one inserted row, in your transaction or its own. It waits for no other transaction, and no other
   * transaction waits for it. After the commit, the actor runs at least once.
   * @returns false if the actor is final; nothing was written then
   * @throws NotFound  there is no such actor @throws InvalidInput  it has no such semaphore
   */
  async incr<S extends string>(
    target: ActorTarget<S>,
    semaphore: NoInfer<S>,
    options: IncrOptions = {},
  ): Promise<boolean> {
    const { tx, ...rest } = options;
    const actor = idOf(target);
    const { n } = checkOptions('incr', rest, incrShape);
    checkOptions('incr', { semaphore }, { semaphore: text({ min: 1 }) });
    try {
      return await this.store.incr({ actor, semaphore, n }, tx);
    } catch (error) {
      if (error instanceof InvalidInput) await this.#suggestSemaphore(actor, semaphore);
      throw error;
    }
  }

  /** Sends a message, which wakes the actor. Its body gets the message by `receive()`. @returns false if the actor is final */
  async send(target: ActorTarget<never>, name: string, payload?: unknown, options: TxOptions = {}): Promise<boolean> {
    const { tx } = onlyTx('send', options);
    requireMessageName(name);
    return this.store.send({ actor: idOf(target), name }, toJson(payload, `the payload of "${name}"`), tx);
  }

  /**
   * Sends a message, in a transaction of its own, and waits for the answer: the actor's body gives it with
   * `message.reply(value)`, and it arrives once that turn is committed. If the time is over and no turn has read the message, the
   * message is taken back.
   * @throws TimedOut  no answer came in time; the message says whether a turn has read the question, and may still act on it
   * @throws Conflict  the actor is final, or a turn has read the message and given no answer
   * @throws NotFound  there is no such actor @throws InvalidInput  `schema` refuses the answer
   */
  async ask<S extends StandardSchemaV1 | undefined = undefined>(
    target: ActorTarget<never>,
    name: string,
    payload?: unknown,
    options: AskOptions<S> = {},
  ): Promise<AnswerOf<S>> {
    requireMessageName(name);
    const json = toJson(payload, `the payload of "${name}"`);
    return (await this.#asker.ask(idOf(target), name, json, options)) as AnswerOf<S>;
  }

  /**
   * Makes the actor due now, in any process that takes its type: it ends a backoff or a nap. A paused actor stays paused.
   * @returns false if a turn of the actor runs now, or the actor is final
   * @throws NotFound
   * @throws Conflict  it is held: resume it
   */
  async retry(target: ActorTarget<never>): Promise<boolean> {
    return this.operator.retry(idOf(target));
  }

  /**
   * Moves an actor to a state, as a new visit that begins at once, even if no transition to that state is declared. It changes
   * the fields of the patch; the others stay. The actor is then due, neither held nor in backoff. A turn that runs meanwhile is
   * fenced off, and none of its effects is written. With the program (`createActors`), the schema checks the fields. The history
   * has the reason.
   * @throws NotFound @throws Conflict  the actor is final, or its turns came in between again and again
   * @throws InvalidInput  its type has no such state; the fields were refused; no reason
   */
  async move(
    target: ActorTarget<never>,
    state: string,
    patch: Readonly<Record<string, unknown>> | undefined,
    options: MoveOptions,
  ): Promise<void> {
    const actor = idOf(target);
    const { reason } = checkOptions('move', { ...options, state }, moveShape);
    for (let tries = 0; tries < MOVES; tries += 1) {
      const record = await this.reader.show(actor);
      const states = Object.keys(record.machine.states);
      if (!states.includes(state)) throw unknownName(`state of ${record.type}`, state, states, 'state');
      const { fields, version } = await this.readMoved(record, patch);
      const { epoch, worker } = record;
      const request = { actor, epoch, runs: worker !== null, state, reason, version };
      if (await this.operator.move(request, fields)) return;
    }
    throw new Conflict(`a turn changed actor ${actor} during each attempt to move it; pause it first`);
  }

  /** The fields of an actor with a patch, as JSON; undefined if they do not change. @throws InvalidInput @internal */
  async readMoved(
    record: ActorRecord,
    patch: Readonly<Record<string, unknown>> | undefined,
  ): Promise<{ readonly fields: string | undefined; readonly version: number | undefined }> {
    if (patch === undefined) return { fields: undefined, version: undefined };
    return { fields: fieldsOf({ ...asFields(record.fields), ...asFields(patch) }), version: record.version };
  }

  /**
   * Asks an actor to end: raises the semaphore `destroy`, which its type must handle in every state.
   * @throws InvalidInput  its type has no `always: { destroy: … }`
   */
  async destroy(target: ActorTarget<never>, options: TxOptions = {}): Promise<boolean> {
    const { tx } = onlyTx('destroy', options);
    const { type, id, machine } = await this.get(target);
    if (machine.always['destroy'] === undefined) {
      throw new InvalidInput(`actor ${id} cannot be destroyed: type "${type}" has no always: { destroy: 'state' }`);
    }
    return this.store.incr({ actor: Number(id), semaphore: 'destroy' }, tx);
  }

  /** Lets no turn begin. Semaphores and messages that come meanwhile are kept. A turn by hand is still possible. */
  async pause(target: PauseTarget): Promise<void> {
    await this.reader.pause(await this.#paused(target));
  }

  /**
   * Ends a pause. Semaphores and messages that came meanwhile are not lost. If the actor is not paused but held because its
   * processes died, the call lets it go. If it is held for another reason, it stays held until a program that knows its state
   * runs, or until the pause of its state ends.
   */
  async resume(target: PauseTarget): Promise<void> {
    await this.reader.pause({ ...(await this.#paused(target)), resume: true });
  }

  /** Opens a page that belongs to no turn; see `a.page()`. */
  async page(
    options: PageOptions,
    rest: TxOptions = {},
  ): Promise<{ id: string; news: 'opened' | 'escalated' | 'none' }> {
    const { tx } = onlyTx('page', rest);
    return this.store.openPage(readPage(options), tx);
  }

  /** Says that somebody works on the page. @returns false if it is resolved already @throws NotFound */
  async ackPage(id: string, by?: string): Promise<boolean> {
    await this.getPage(id);
    return this.reader.ack(pageId(id), by);
  }

  /** Resolves a page, by id or by tag. @returns false if none was open @throws InvalidInput; NotFound for an unknown id */
  async resolvePage(which: PageChoice, options: TxOptions = {}): Promise<boolean> {
    const { tx } = onlyTx('resolvePage', options);
    const chosen = readPageChoice('resolvePage', which);
    if ('tag' in chosen) return this.store.resolvePage(chosen.tag, tx);
    const page = await this.getPage(chosen.id);
    return page.status === 'resolved' ? false : this.store.resolvePage(page.tag, tx);
  }

  /** For a program that has just declared the index. Rows that are locked are left for later. */
  protected async fillIndex(type: string): Promise<void> {
    await this.operator.fillIndex(type).catch((error: unknown) => {
      if (!(error instanceof LockNotAvailable)) throw error;
    });
  }

  async #paused(target: PauseTarget): Promise<object> {
    if (typeof target !== 'object' || target === null || 'id' in target)
      return { actor: idOf(target as ActorTarget<never>) };
    const { type, state } = checkOptions('pause and resume', target, pauseShape);
    const record = await this.typeNamed(type);
    const states = Object.keys(record.machine.states);
    if (state !== undefined && !states.includes(state)) throw unknownName(`state of ${type}`, state, states, 'state');
    return { type, state };
  }

  /**
   * If the database refused the semaphore and lists the declared ones, the error suggests the nearest name. @throws InvalidInput
   */
  async #suggestSemaphore(actor: number, semaphore: string): Promise<void> {
    const [record, types] = await Promise.all([this.reader.look(actor), this.reader.types()]);
    const type = types.find(({ name }) => name === record?.type);
    if (type !== undefined) requireSemaphore(type.name, semaphore, type.semaphores);
  }
}

/** Operates actors without the program that runs them: the actors of a database, or of a table of DynamoDB. */
export function createActorAdmin(engine: PostgresEngine | DynamoEngine): ActorAdmin {
  if (!(engine instanceof DynamoEngine)) requireEngine('createActorAdmin', engine);
  return new ActorAdmin(engine);
}

function onlyTx(what: string, options: TxOptions): TxOptions {
  return checkOptions(what, options, { tx: openTransaction });
}
