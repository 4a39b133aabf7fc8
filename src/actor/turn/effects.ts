import { Conflict, InvalidInput } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import type { Transaction } from '../../engine/postgres/index.ts';
import { type PageOptions, type PageRequest, readPage } from '../pages/page.ts';

/** A job for a queue, in the form for `pawl.enqueue(jsonb)`. */
export interface JobRequest {
  readonly queue: string;
  readonly kind: string;
  readonly payload?: unknown;
  readonly key?: string | undefined;
  readonly priority?: number | undefined;
  /** The job does not run before this time, by the database's clock. */
  readonly runAt?: Date | undefined;
}

/** Options of a new child. */
export interface ChildOptions {
  /** At most one actor of this type and key exists, ever: if there is one already, the turn fails. 1 to 1000 bytes. */
  readonly key?: string | undefined;
}

/** The statements of effects. */
export interface EffectStore {
  /** @param request  JSON */
  ask(what: 'create' | 'page' | 'resolve' | 'enqueue' | 'reply', request: string, tx: Transaction): Promise<unknown>;
  incr(request: object, tx: unknown): Promise<boolean>;
  send(head: object, payload: string, tx: unknown): Promise<boolean>;
  /** @param cut  names of which some messages were not taken @returns how many of `ids` still existed */
  dropMessages(actor: number, ids: readonly string[], cut: readonly string[], tx: Transaction): Promise<number>;
}

interface NewChild {
  readonly id: number;
  readonly type: string;
  readonly version: number;
  readonly key: string | undefined;
  /** JSON. */
  readonly fields: string;
}

/** The effects that a turn requests in addition to its outcome. They are collected while it runs and written with its commit. */
export class Effects {
  readonly children: NewChild[] = [];
  readonly incrs: { readonly actor: number; readonly semaphore: string }[] = [];
  /** The payloads as JSON, as they were at the time of the call. */
  readonly messages: { readonly actor: number; readonly name: string; readonly json: string }[] = [];
  /** JSON. */
  readonly jobs: string[] = [];
  readonly received: Set<string> = new Set();
  /** Names of which some messages were not taken. */
  readonly cut: Set<string> = new Set();
  /** Answers as JSON, by the id of the question. */
  readonly replies: Map<string, string> = new Map();
  readonly resolved: Set<string> = new Set();
  readonly callbacks: ((tx: Transaction) => unknown)[] = [];
  readonly #pages = new Map<string, PageRequest>();

  page(options: PageOptions, actor: string): void {
    const page = readPage(options, actor);
    const known = this.#pages.get(page.tag);
    this.#pages.set(page.tag, known === undefined || known.severity <= page.severity ? page : known);
  }

  /** The pages that the turn opens, by tag. */
  get pages(): ReadonlyMap<string, PageRequest> {
    return this.#pages;
  }

  get isEmpty(): boolean {
    const { children, incrs, messages, jobs, received, resolved, callbacks } = this;
    if (this.replies.size > 0) return false;
    const lists = children.length + incrs.length + messages.length + jobs.length + callbacks.length;
    return lists + received.size + resolved.size + this.#pages.size === 0;
  }

  /** Writes all effects in the transaction that commits the turn. @param parent  the actor whose turn it is */
  async write(store: EffectStore, tx: Transaction, parent: number): Promise<void> {
    for (const step of this.#steps(store, tx, parent)) {
      if (faults.armed) await faults.reach('actor.between_effects');
      await step();
    }
  }

  /** One statement for each step. */
  *#steps(store: EffectStore, tx: Transaction, parent: number): Generator<() => unknown> {
    for (const child of this.children) yield () => createChild(child, store, tx, parent);
    for (const incr of this.incrs) yield () => store.incr(incr, tx);
    for (const { json, ...head } of this.messages) yield () => store.send(head, json, tx);
    if (this.received.size > 0) yield () => this.#drop(store, tx, parent);
    for (const [message, json] of this.replies)
      yield () => store.ask('reply', `[${JSON.stringify({ message })},${json}]`, tx);
    for (const job of this.jobs) yield () => store.ask('enqueue', job, tx);
    // In the order of their tags, so that two turns with the same pages never wait for each other.
    for (const tag of [...new Set([...this.#pages.keys(), ...this.resolved])].sort()) {
      const page = this.#pages.get(tag);
      if (page !== undefined) yield () => store.ask('page', JSON.stringify(page), tx);
      if (this.resolved.has(tag)) yield () => store.ask('resolve', JSON.stringify([tag]), tx);
    }
    for (const callback of this.callbacks) yield () => callback(tx);
  }

  /** @throws QuestionTakenBack */
  async #drop(store: EffectStore, tx: Transaction, actor: number): Promise<void> {
    const dropped = await store.dropMessages(actor, [...this.received], [...this.cut], tx);
    if (dropped < this.received.size) throw new QuestionTakenBack(actor);
  }
}

/**
 * A turn has read a question, but its sender has since been told that no turn reads it. Nothing of the turn is kept, and it is
 * not charged.
 */
export class QuestionTakenBack extends Conflict {
  constructor(actor: number) {
    super(`a question that a turn of actor ${actor} had read was withdrawn before the turn committed`);
  }
}

async function createChild(
  { fields, ...child }: NewChild,
  store: EffectStore,
  tx: Transaction,
  parent: number,
): Promise<void> {
  const head = JSON.stringify({ ...child, parent, counted: true });
  const made = (await store.ask('create', `[${head},${fields}]`, tx)) as { id: string; created: boolean };
  if (made.created) return;
  throw new InvalidInput(
    `a ${child.type} with the key "${child.key}" exists already (${made.id}), so it cannot be created as a child of ${parent}; find it first`,
    { field: 'key' },
  );
}
