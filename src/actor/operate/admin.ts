import { Conflict, InvalidInput, LockNotAvailable, NotFound } from '../../base/errors.ts';
import { bool, checkOptions, integer, oneOf, optional, text } from '../../base/options/options.ts';
import type { StandardSchemaV1 } from '../../base/options/schema.ts';
import { toJson } from '../../base/storable.ts';
import { openTransaction, type PostgresEngine, requireEngine } from '../../engine/postgres/index.ts';
import type { Machine } from '../machine.ts';
import { asFields, fieldsOf, requireMessageName, requireSemaphore, unknownName } from '../option-checks.ts';
import { type PageOptions, readPage } from '../pages/page.ts';
import { PostgresActorOperator } from '../postgres/operator.ts';
import { type ActorHealth, PostgresActorReader, type TypeRecord } from '../postgres/reader.ts';
import { PostgresActorStore } from '../postgres/store.ts';
import {
  ACTOR_STATUSES,
  type ActorRecord,
  type ActorSummary,
  type ActorTransition,
  type FieldChange,
  type PageRecord,
} from '../record.ts';
import { type ActorTarget, idOf } from '../target.ts';
import { type AnswerOf, Asker, type AskOptions } from './asker.ts';
import { diagnosticsHtml } from './diagnostics.ts';
import { type DiagramOptions, mermaid, svg } from './diagram.ts';
import { type ActorExplanation, explain } from './explain.ts';
import type {
  HistoryOptions,
  IncrOptions,
  ListOptions,
  MoveOptions,
  PagesOptions,
  PauseTarget,
  TxOptions,
  WaitOptions,
} from './options.ts';
import { waitForActor } from './wait-for.ts';
import { requireIndexed, requireType } from './where.ts';

const before = optional(text({ pattern: [/^\d{1,15}$/, 'an id'] }));
const listShape = {
  type: optional(text({ min: 1 })),
  state: optional(text({ min: 1 })),
  status: optional(oneOf(ACTOR_STATUSES)),
  final: optional(bool()),
  before,
  limit: integer({ min: 1, max: 10_000, default: 100 }),
};
const historyShape = {
  before: integer({ min: 0, default: Number.MAX_SAFE_INTEGER }),
  limit: integer({ min: 1, max: 10_000, default: 1000 }),
};
const moveShape = { state: text({ min: 1 }), reason: text({ min: 1, max: 500 }) };
/** How often a move is tried anew because turns come in between. */
const MOVES = 20;
const incrShape = { n: integer({ min: 1, max: 1_000_000, default: 1 }) };
const pauseShape = { type: text({ min: 1 }), state: optional(text({ min: 1 })) };
const pagesShape = {
  resolved: bool({ default: false }),
  before,
  limit: integer({ min: 1, max: 10_000, default: 100 }),
};

const COUNT_LIMIT = 10_000;

/** What can be done with actors without the program that runs them: by operators, scripts, the command line. */
export class ActorAdmin {
  protected readonly store: PostgresActorStore;
  protected readonly reader: PostgresActorReader;
  readonly #operator: PostgresActorOperator;
  readonly #asker: Asker;

  constructor(engine: PostgresEngine) {
    this.store = new PostgresActorStore(engine);
    this.reader = new PostgresActorReader(engine);
    this.#operator = new PostgresActorOperator(engine);
    this.#asker = new Asker(this.#operator);
  }

  /** @throws NotFound */
  async get(target: ActorTarget<never>): Promise<ActorRecord> {
    return this.reader.show(idOf(target));
  }

  /** What no worker would mend by itself; what `pawl doctor` says. */
  health(): Promise<ActorHealth> {
    return this.reader.health();
  }

  /**
   * Newest first.
   * @throws InvalidInput  `where` names a field that the type does not declare in `index` @throws LockNotAvailable  `where` waits for
   *   an index that was declared just now, and an open transaction keeps it from being written
   */
  async list(options: ListOptions = {}): Promise<ActorSummary[]> {
    const { parent, where, ...rest } = options;
    const given = checkOptions('list', rest, listShape);
    return this.reader.list({
      ...given,
      where: where === undefined || isEmpty(where) ? undefined : await this.#where(given.type, where),
      parent: parent === undefined ? undefined : idOf(parent),
      before: Number(given.before ?? Number.MAX_SAFE_INTEGER),
      final: given.final ?? given.status === 'final',
    });
  }

  /** The types that the database knows, with their machines. */
  types(): Promise<TypeRecord[]> {
    return this.reader.types();
  }

  /** Why an actor is not running. @throws NotFound */
  async explain(target: ActorTarget<never>): Promise<ActorExplanation> {
    return explain(await this.get(target));
  }

  /** Its transitions and failures, oldest first: the last thousand, or those before them. @throws NotFound */
  async history(target: ActorTarget<never>, options: HistoryOptions = {}): Promise<ActorTransition[]> {
    const id = idOf(target);
    const given = checkOptions('history', options, historyShape);
    const history = await this.reader.history(id, given.before, given.limit);
    if (history.length === 0) await this.reader.show(id);
    return history;
  }

  /**
   * What its turns changed in its fields, newest first: the fields before and after each. Empty unless its type declares
   * `fieldHistory`. Turns of a program that does not declare it leave none: the next row then shows what they changed, too.
   * @throws NotFound
   */
  async fieldHistory(target: ActorTarget<never>, options: HistoryOptions = {}): Promise<FieldChange[]> {
    const id = idOf(target);
    const given = checkOptions('fieldHistory', options, historyShape);
    const changes = await this.reader.fieldHistory(id, given.before, given.limit);
    if (changes.length === 0) await this.reader.show(id);
    return changes;
  }

  /**
   * Waits until an actor is in a state, or has a status (`'final'` by default), and gives it then. For scripts and tests: it
   * asks every 50 ms.
   * @throws TimedOut  says where it is @throws NotFound
   */
  async waitFor(target: ActorTarget<never>, options: WaitOptions = {}): Promise<ActorRecord> {
    return waitForActor(() => this.get(target), options);
  }

  /**
   * Raises a semaphore: one inserted row, in your transaction or its own; it waits for no other transaction, and none waits for it. The
   * actor runs at least once after it is committed.
   * @returns false when the actor is final, and nothing was written
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

  /** Sends a message, which wakes the actor; its body `receive()`s it. @returns false when it is final */
  async send(target: ActorTarget<never>, name: string, payload?: unknown, options: TxOptions = {}): Promise<boolean> {
    const { tx } = onlyTx('send', options);
    requireMessageName(name);
    return this.store.send({ actor: idOf(target), name }, toJson(payload, `the payload of "${name}"`), tx);
  }

  /**
   * Sends a message and waits for the answer that the actor's body gives with `message.reply(value)`: it is there once that turn
   * is committed. In a transaction of its own. When the time is over, a message that no turn has read is taken back.
   * @throws TimedOut  no answer came in time; it says whether a turn has read the message, and may yet do what it asks
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
   * Has its next turn begin now, in whatever process takes its type: a back-off or a nap is over. A paused actor stays paused.
   * @returns false when a turn of it runs just now, or it is final @throws NotFound @throws Conflict  it is held: resume it
   */
  async retry(target: ActorTarget<never>): Promise<boolean> {
    return this.#operator.retry(idOf(target));
  }

  /**
   * Puts an actor into a state, declared transition or not, as a new visit that begins at once, and changes its fields: those of the
   * patch, the others stay. It is due, neither held nor backing off; a turn that runs meanwhile is fenced off, and nothing that comes of
   * it is written. With the program (`createActors`), the schema checks the fields. The history has the reason.
   * @throws NotFound @throws Conflict  it is final, or its turns came in between again and again
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
      if (await this.#operator.move({ actor, epoch: record.epoch, state, reason, version }, fields)) return;
    }
    throw new Conflict(`actor ${actor} was changed by its turns each time it was to be moved; pause it first`);
  }

  /** The fields of an actor with a patch, as JSON; undefined when they stay. @throws InvalidInput @internal */
  async readMoved(
    record: ActorRecord,
    patch: Readonly<Record<string, unknown>> | undefined,
  ): Promise<{ readonly fields: string | undefined; readonly version: number | undefined }> {
    if (patch === undefined) return { fields: undefined, version: undefined };
    return { fields: fieldsOf({ ...asFields(record.fields), ...asFields(patch) }), version: record.version };
  }

  /**
   * Asks an actor to end: raises the semaphore `destroy`, from which its type leads on from every state.
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

  /** Lets no turn begin; what comes meanwhile is kept. A turn by hand is still possible. */
  async pause(target: PauseTarget): Promise<void> {
    await this.reader.pause(await this.#paused(target));
  }

  /** Ends a pause: nothing that came meanwhile is lost. */
  async resume(target: PauseTarget): Promise<void> {
    await this.reader.pause({ ...(await this.#paused(target)), resume: true });
  }

  /** The machine of a type, with how many actors are in each state (10,000 means that many or more). @throws NotFound */
  async diagram(
    type: string,
    options: { readonly format?: 'mermaid' | 'svg'; readonly counts?: boolean } = {},
  ): Promise<string> {
    const { format, counts } = checkOptions('diagram', options, {
      format: oneOf(['mermaid', 'svg'], { default: 'mermaid' }),
      counts: bool({ default: true }),
    });
    const record = await this.#type(type);
    const drawn: DiagramOptions = counts ? { counts: await this.reader.counts(record.id, COUNT_LIMIT) } : {};
    return draw(format, record.machine, drawn);
  }

  /** An HTML file about an actor: machine with its state, history, fields, semaphores, errors, children, what to try. */
  async diagnose(target: ActorTarget<never>): Promise<string> {
    return this.#diagnose(idOf(target), undefined);
  }

  /** Opens a page that belongs to no turn; see `a.page()`. */
  async page(
    options: PageOptions,
    rest: TxOptions = {},
  ): Promise<{ id: string; news: 'opened' | 'escalated' | 'none' }> {
    const { tx } = onlyTx('page', rest);
    return this.store.openPage(readPage(options), tx);
  }

  /** Newest first, those that are open unless told otherwise. */
  async pages(options: PagesOptions = {}): Promise<PageRecord[]> {
    const { actor, ...rest } = options;
    const given = checkOptions('pages', rest, pagesShape);
    return this.reader.pages({
      ...given,
      actor: actor === undefined ? undefined : idOf(actor),
      before: Number(given.before ?? Number.MAX_SAFE_INTEGER),
    });
  }

  /** @throws NotFound */
  async getPage(id: string): Promise<PageRecord> {
    return this.reader.page(pageId(id));
  }

  /** The diagnostics page of a page, as HTML. @throws NotFound */
  async pageHtml(id: string): Promise<string> {
    const page = await this.getPage(id);
    return this.#diagnose(page.actor === null ? undefined : Number(page.actor), page);
  }

  /** Somebody is looking at it. @returns false when it is resolved already @throws NotFound */
  async ackPage(id: string, by?: string): Promise<boolean> {
    await this.getPage(id);
    return this.reader.ack(pageId(id), by);
  }

  /** By id or by tag. @returns false when none was open */
  async resolvePage(
    which: { readonly id: string } | { readonly tag: string },
    options: TxOptions = {},
  ): Promise<boolean> {
    const { tx } = onlyTx('resolvePage', options);
    if ('tag' in which) return this.store.resolvePage(which.tag, tx);
    const page = await this.getPage(which.id);
    return page.status === 'resolved' ? false : this.store.resolvePage(page.tag, tx);
  }

  /** @throws InvalidInput, NotFound */
  async #where(type: string | undefined, where: object): Promise<string> {
    const name = requireType(type);
    const indexes = (await this.#operator.indexes(name)) ?? (await this.#type(name)).indexes;
    requireIndexed(name, where, indexes);
    await this.#operator.fillIndex(name);
    return toJson(where, 'where');
  }

  /** For those who have just declared it: what is locked is left for later. */
  protected async fillIndex(type: string): Promise<void> {
    await this.#operator.fillIndex(type).catch((error: unknown) => {
      if (!(error instanceof LockNotAvailable)) throw error;
    });
  }

  async #diagnose(id: number | undefined, page: PageRecord | undefined): Promise<string> {
    const actor = id === undefined ? undefined : await this.reader.look(id);
    const [history, children] =
      actor === undefined
        ? [[], []]
        : await Promise.all([
            this.reader.history(Number(actor.id), Number.MAX_SAFE_INTEGER, 200),
            this.list({ parent: actor.id, final: true }),
          ]);
    return diagnosticsHtml({ page, actor, history, children, at: new Date() });
  }

  async #paused(target: PauseTarget): Promise<object> {
    if (typeof target !== 'object' || target === null || 'id' in target)
      return { actor: idOf(target as ActorTarget<never>) };
    const { type, state } = checkOptions('pause and resume', target, pauseShape);
    const record = await this.#type(type);
    const states = Object.keys(record.machine.states);
    if (state !== undefined && !states.includes(state)) throw unknownName(`state of ${type}`, state, states, 'state');
    return { type, state };
  }

  /** The database has refused it, and lists what there is: with the nearest it is read faster. @throws InvalidInput */
  async #suggestSemaphore(actor: number, semaphore: string): Promise<void> {
    const [record, types] = await Promise.all([this.reader.look(actor), this.reader.types()]);
    const type = types.find(({ name }) => name === record?.type);
    if (type !== undefined) requireSemaphore(type.name, semaphore, type.semaphores);
  }

  async #type(name: string): Promise<TypeRecord> {
    const all = await this.reader.types();
    const found = all.find((type) => type.name === name);
    if (found === undefined) {
      const error = unknownName(
        'actor type',
        name,
        all.map((type) => type.name),
        'type',
      );
      throw new NotFound(error.message);
    }
    return found;
  }
}

/** Operates actors without the program that runs them. */
export function createActorAdmin(engine: PostgresEngine): ActorAdmin {
  requireEngine('createActorAdmin', engine);
  return new ActorAdmin(engine);
}

function onlyTx(what: string, options: TxOptions): TxOptions {
  return checkOptions(what, options, { tx: openTransaction });
}

export function draw(format: 'mermaid' | 'svg', machine: Machine, options: DiagramOptions): string {
  return format === 'svg' ? svg(machine, options) : mermaid(machine, options);
}

function isEmpty(where: object): boolean {
  return Object.keys(where).length === 0;
}

function pageId(id: string): number {
  if (!/^[1-9]\d{0,14}$/.test(id))
    throw new InvalidInput(`a page is named by its id, such as "42", but was ${JSON.stringify(id)}`, { field: 'id' });
  return Number(id);
}
