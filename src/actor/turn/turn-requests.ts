import { checkOptions, func } from '../../base/options/options.ts';
import type { StandardSchemaV1 } from '../../base/options/schema.ts';
import { toJson } from '../../base/storable.ts';
import type { Transaction } from '../../engine/postgres/index.ts';
import type { ActorKind } from '../kind.ts';
import { readKey, requireMessageName } from '../option-checks.ts';
import { type PageOptions, readTag } from '../pages/page.ts';
import type { ActorClaim, ChildRecord, MessageFilter, MessageRow, TurnToken } from '../store.ts';
import { type ActorHandle, type ActorTarget, idOf } from '../target.ts';
import { type ChildOptions, Effects, type JobRequest } from './effects.ts';
import { Inbox, type PayloadOf, type ReceiveOptions } from './inbox.ts';
import type { Message } from './message.ts';
import { TurnFacts } from './turn-facts.ts';

const commitShape = { fn: func<(tx: Transaction) => unknown>() };

/** The calls of a turn to its worker. */
export interface TurnOwner {
  allocate(): Promise<number>;
  /** @throws InvalidInput, NotFound */
  readNew(type: string, fields: unknown): Promise<{ type: string; version: number; fields: string }>;
  recall(actor: number, visit: number, key: string): Promise<{ result: unknown } | undefined>;
  remember(token: TurnToken, visit: number, key: string, result: string): Promise<void>;
  messages(actor: number, which: MessageFilter): Promise<MessageRow[]>;
  children(actor: number): Promise<ChildRecord[]>;
  guard(token: TurnToken, tx: unknown): Promise<void>;
}

/** The effects that a body can request in addition to its outcome: all of them are committed with the outcome. */
export class TurnRequests<F> extends TurnFacts<F> {
  /** @internal */
  readonly owner: TurnOwner;
  #effects: Effects | undefined;

  /** @internal */
  constructor(claim: ActorClaim, worker: number, type: string, fields: F, owner: TurnOwner) {
    super(claim, worker, type, fields);
    this.owner = owner;
  }

  /** Runs `fn` in the transaction that commits the turn, after everything else. If `fn` throws, the turn fails. */
  atCommit(fn: (tx: Transaction) => unknown): void {
    checkOptions('atCommit', { fn }, commitShape);
    this.#pendingEffects().callbacks.push(fn);
  }

  /** Creates a child. The child exists once the turn is committed; its id is known at once, for the fields. */
  async create<CF, CS extends string, In>(
    definition: ActorKind<CF, CS, In>,
    fields: NoInfer<In>,
    options: ChildOptions = {},
  ): Promise<ActorHandle<CS>> {
    const effects = this.#pendingEffects();
    const key = readKey(options);
    const made = await this.owner.readNew(definition.name, fields);
    const id = await this.owner.allocate();
    this.life.check();
    effects.children.push({ ...made, id, key });
    return { id: String(id), type: made.type };
  }

  /** Raises a semaphore of another actor. */
  incr<OS extends string>(target: ActorTarget<OS>, semaphore: NoInfer<OS>): void {
    this.#pendingEffects().incrs.push({ actor: idOf(target), semaphore });
  }

  /** Raises a semaphore of every child that is not final; `destroy` by default. */
  async incrChildren(semaphore = 'destroy'): Promise<number> {
    const open = (await this.children()).filter(({ isFinal }) => !isFinal);
    for (const child of open) this.incr(child.id, semaphore);
    return open.length;
  }

  /** Sends a message to another actor, which `receive()`s it. */
  send(target: ActorTarget<never>, name: string, payload?: unknown): void {
    requireMessageName(name);
    const json = toJson(payload, `the payload of "${name}"`);
    this.#pendingEffects().messages.push({ actor: idOf(target), name, json });
  }

  /**
   * The messages in the inbox, oldest first, at most a thousand. The turn's commit removes them; without it, the next turn gets
   * them again. If there were more, the others wake the actor again.
   */
  async receive(): Promise<Message[]>;
  /**
   * The messages of one name. Messages of other names stay for a later turn, and do not wake the actor again.
   * @throws InvalidInput  `schema` refused one of them; the error names the message
   */
  async receive<S extends StandardSchemaV1 | undefined = undefined>(
    name: string,
    options?: ReceiveOptions<S>,
  ): Promise<Message<PayloadOf<S>>[]>;
  async receive(name?: string, options: ReceiveOptions<StandardSchemaV1 | undefined> = {}): Promise<Message[]> {
    const inbox = new Inbox(
      () => this.#pendingEffects(),
      (which) => this.owner.messages(this.claim.id, which),
    );
    return inbox.take(name, options);
  }

  /** All its children, oldest first, with the results of those that are final. */
  children(): Promise<ChildRecord[]> {
    this.life.check();
    return this.owner.children(this.claim.id);
  }

  /** Adds a job to a queue. */
  enqueue(job: JobRequest): void {
    this.#pendingEffects().jobs.push(toJson(job, 'a job'));
  }

  /** Opens a page about this actor. If a page with this tag is open, it repeats that page. */
  page(page: PageOptions): void {
    this.#pendingEffects().page(page, this.id);
  }

  /** Resolves the page with this tag, if one is open. @throws InvalidInput */
  resolve(tag: string): void {
    this.#pendingEffects().resolved.add(readTag('resolve', tag));
  }

  /** @internal */
  get effects(): Effects | undefined {
    return this.#effects?.isEmpty === false ? this.#effects : undefined;
  }

  #pendingEffects(): Effects {
    this.life.check();
    this.#effects ??= new Effects();
    return this.#effects;
  }
}
