import { InvalidInput, NotFound } from '../../base/errors.ts';
import { bool, checkOptions, integer, oneOf, optional, text } from '../../base/options/options.ts';
import { toJson } from '../../base/storable.ts';
import { DynamoEngine } from '../../engine/dynamodb/index.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { ActorBackend } from '../backend.ts';
import { dynamoBackend } from '../dynamodb/backend.ts';
import type { Machine } from '../machine.ts';
import { unknownName } from '../option-checks.ts';
import { postgresBackend } from '../postgres/backend.ts';
import type { ActorHealth, TypeRecord } from '../postgres/reader.ts';
import {
  ACTOR_STATUSES,
  type ActorRecord,
  type ActorSummary,
  type ActorTransition,
  type FieldChange,
  type PageRecord,
} from '../record.ts';
import { type ActorTarget, idOf } from '../target.ts';
import { diagnosticsHtml } from './diagnostics.ts';
import { type DiagramOptions, mermaid, svg } from './diagram.ts';
import { type ActorExplanation, explain } from './explain.ts';
import type { HistoryOptions, ListOptions, PagesOptions, WaitOptions } from './options.ts';
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
const pagesShape = {
  resolved: bool({ default: false }),
  before,
  limit: integer({ min: 1, max: 10_000, default: 100 }),
};

const COUNT_LIMIT = 10_000;

function backendOf(on: PostgresEngine | DynamoEngine | ActorBackend): ActorBackend {
  if ('operator' in on) return on;
  return on instanceof DynamoEngine ? dynamoBackend(on, [], 1) : postgresBackend(on);
}

/** Queries about actors, without the program that runs them. */
export class ActorQueries {
  /** @internal */
  protected readonly store: ActorBackend['store'];
  /** @internal */
  protected readonly reader: ActorBackend['reader'];
  /** @internal */
  protected readonly operator: ActorBackend['operator'];

  /** @internal */
  constructor(on: PostgresEngine | DynamoEngine | ActorBackend) {
    const { store, reader, operator } = backendOf(on);
    this.store = store;
    this.reader = reader;
    this.operator = operator;
  }

  /** @throws NotFound */
  async get(target: ActorTarget<never>): Promise<ActorRecord> {
    return this.reader.show(idOf(target));
  }

  /** Problems that no worker repairs by itself; `pawl doctor` shows them. */
  health(): Promise<ActorHealth> {
    return this.reader.health();
  }

  /**
   * Lists actors, newest first.
   * @throws InvalidInput  `where` names a field that the type does not declare in `index`
   * @throws LockNotAvailable  `where` waits for an index that was just declared, and an open transaction prevents that it is
   *   written
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

  /** The types in the database, with their machines. */
  types(): Promise<TypeRecord[]> {
    return this.reader.types();
  }

  /** Why an actor is not running. @throws NotFound */
  async explain(target: ActorTarget<never>): Promise<ActorExplanation> {
    return explain(await this.get(target));
  }

  /** The transitions and failures of an actor, oldest first: the last thousand, or those before `before`. @throws NotFound */
  async history(target: ActorTarget<never>, options: HistoryOptions = {}): Promise<ActorTransition[]> {
    const id = idOf(target);
    const given = checkOptions('history', options, historyShape);
    const history = await this.reader.history(id, given.before, given.limit);
    if (history.length === 0) await this.reader.show(id);
    return history;
  }

  /**
   * The changes of its turns to its fields, newest first: the fields before and after each turn. Empty unless its type declares
   * `fieldHistory`. If a program does not declare it, its turns leave no row: the next row then shows their changes, too.
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
   * Waits until an actor is in a state, or has a status (`'final'` by default), and returns the actor. For scripts and tests: it
   * polls every 50 ms.
   * @throws TimedOut  says which state the actor is in @throws NotFound
   */
  async waitFor(target: ActorTarget<never>, options: WaitOptions = {}): Promise<ActorRecord> {
    return waitForActor(() => this.get(target), options);
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
    const record = await this.typeNamed(type);
    const drawn: DiagramOptions = counts ? { counts: await this.reader.counts(record.id, COUNT_LIMIT) } : {};
    return draw(format, record.machine, drawn);
  }

  /** An HTML file about an actor: machine with its state, history, fields, semaphores, errors, children, what to try. */
  async diagnose(target: ActorTarget<never>): Promise<string> {
    return this.#diagnose(idOf(target), undefined);
  }

  /** Pages, newest first; by default only the open ones. */
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

  /** @throws InvalidInput, NotFound */
  async #where(type: string | undefined, where: object): Promise<string> {
    const name = requireType(type);
    const indexes = (await this.operator.indexes(name)) ?? (await this.typeNamed(name)).indexes;
    requireIndexed(name, where, indexes);
    await this.operator.fillIndex(name);
    return toJson(where, 'where');
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

  /** @throws NotFound @internal */
  protected async typeNamed(name: string): Promise<TypeRecord> {
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

export function draw(format: 'mermaid' | 'svg', machine: Machine, options: DiagramOptions): string {
  return format === 'svg' ? svg(machine, options) : mermaid(machine, options);
}

function isEmpty(where: object): boolean {
  return Object.keys(where).length === 0;
}

export function pageId(id: string): number {
  if (!/^[1-9]\d{0,14}$/.test(id))
    throw new InvalidInput(`a page is named by its id, such as "42", but was ${JSON.stringify(id)}`, { field: 'id' });
  return Number(id);
}
