import { InvalidInput, LeaseLost, NotSupported } from '../../base/errors.ts';
import type { HandoffSubscription, RecallResult } from '../../base/handoff/handoff.ts';
import { type DynamoEngine, Liveness } from '../../engine/dynamodb/index.ts';
import type { ActorDefinition } from '../definition.ts';
import type { PageRequest } from '../pages/page.ts';
import type { NewsHandlers } from '../postgres/listening.ts';
import type {
  ActorClaim,
  ChildRecord,
  ClaimAnswer,
  CommitAnswer,
  MessageFilter,
  MessageRow,
  TurnCommit,
  TurnToken,
  WorkerRow,
} from '../store.ts';
import type { Effects } from '../turn/effects.ts';
import type { TurnStore } from '../work/ports.ts';
import { ActorRows } from './database.ts';
import { Questions } from './operate/questions.ts';
import { Notices } from './pages/notices.ts';
import { Pages } from './pages/pages.ts';
import { Producing } from './producing.ts';
import { WORKERS } from './rows.ts';
import { Types } from './types.ts';
import { Claiming, type HeldTurn } from './work/claiming.ts';
import { Deadlines } from './work/deadlines.ts';
import { Holding } from './work/holding.ts';
import { Notes } from './work/notes.ts';
import { Removal } from './work/removal.ts';
import { Rescuing } from './work/rescue.ts';
import { Settling } from './work/settling.ts';
import { StatePauses } from './work/state-pauses.ts';
import { TurnReads } from './work/turn-reads.ts';
import { Workers } from './work/workers.ts';

const TIMEOUT_MS = 30_000;

/** The requests of turns, workers and producers. The service may execute each twice: see docs/decisions/029-actors-on-dynamodb.md. */
export class DynamoActorStore implements TurnStore {
  readonly engine: TurnStore['engine'];
  readonly rows: ActorRows;
  readonly types: Types;
  readonly liveness: Liveness;
  readonly producing: Producing;
  readonly questions: Questions;
  readonly pages: Pages;
  readonly notices: Notices;
  readonly deadlines: Deadlines;
  readonly statePauses: StatePauses;
  readonly removal: Removal;
  readonly #holding: Holding;
  readonly #shards: number;
  readonly #held = new Map<number, HeldTurn>();
  readonly #claiming: Claiming;
  readonly #settling: Settling;
  readonly #rescuing: Rescuing;
  readonly #reads: TurnReads;
  readonly #workers: Workers;
  readonly #listeners = new Set<NewsHandlers>();
  /** Work under way for which no caller waits, such as removals of rows. */
  readonly #later = new Set<Promise<unknown>>();

  constructor(engine: DynamoEngine, shards: number) {
    this.#shards = shards;
    this.rows = new ActorRows(engine, TIMEOUT_MS);
    this.types = new Types(this.rows);
    this.liveness = new Liveness(this.rows, WORKERS);
    this.producing = new Producing(this.rows, this.types);
    const notes = new Notes(this.rows);
    this.pages = new Pages(this.rows);
    this.notices = new Notices(this.rows, this.pages);
    this.deadlines = new Deadlines(this.rows, this.types, this.pages);
    this.statePauses = new StatePauses(this.rows, this.types);
    this.removal = new Removal(this.rows, this.types);
    this.#holding = new Holding(this.rows, this.types, this.pages);
    const later = (work: Promise<unknown>): void => this.#do(work);
    this.#claiming = new Claiming(this.rows, this.types, notes, this.statePauses, this.#held, later);
    this.questions = new Questions(this.rows, this.producing);
    const onAnswer = (actor: number, message: number): void => this.questions.answered(actor, message);
    this.#settling = new Settling(
      this.rows,
      notes,
      this.producing,
      this.pages,
      this.removal,
      this.#held,
      later,
      onAnswer,
    );
    this.#rescuing = new Rescuing(this.rows, this.types, notes, this.liveness, this.pages);
    this.#reads = new TurnReads(this.rows, this.types, this.#held);
    this.#workers = new Workers(this.rows, this.types, notes, this.liveness, this.#holding);
    this.engine = {
      isStopped: false,
      options: { logger: engine.logger },
      address: () => Promise.resolve(`the table "${engine.table}" of DynamoDB`),
      isTransient: (error) => engine.isTransient(error),
    };
  }

  /** Keeps work for which no caller waits. If a removal fails, the worker that finds the row removes it. */
  #do(work: Promise<unknown>): void {
    const done = work.catch(() => {}).finally(() => this.#later.delete(done));
    this.#later.add(done);
  }

  async register(definitions: readonly ActorDefinition[]): Promise<ReadonlyMap<number, ActorDefinition>> {
    const ids = await this.types.register(definitions, this.#shards);
    return new Map(definitions.map((definition) => [Number(ids.get(definition.name)), definition]));
  }

  async create(head: object, fields: string, tx: unknown): Promise<{ id: string; created: boolean; state: string }> {
    refuseTransaction(tx);
    const { type = '', version = 1, key, parent }: CreateRequest = head;
    const made = await this.producing.create({ type, version, key, parent }, fields);
    if (made.created) this.notify();
    return made;
  }

  async incr(request: object, tx: unknown): Promise<boolean> {
    refuseTransaction(tx);
    const { actor = 0, semaphore = '', n = 1 }: IncrRequest = request;
    const counts = await this.producing.incr(actor, semaphore, n);
    this.notify(actor);
    return counts;
  }

  async send(head: object, payload: string, tx: unknown): Promise<boolean> {
    refuseTransaction(tx);
    const { actor = 0, name = '' }: SendRequest = head;
    const counts = await this.producing.send(actor, name, payload);
    this.notify();
    return counts;
  }

  allocate(): Promise<number> {
    return this.producing.allocate();
  }

  claim(worker: number, types: readonly number[], limit: number): Promise<ClaimAnswer> {
    return this.#claiming.claim(worker, types, limit);
  }

  claimAlone(worker: number, types: readonly number[], isIdle: boolean): Promise<ActorClaim | undefined> {
    return this.#claiming.claimAlone(worker, types, isIdle);
  }

  claimOne(worker: number, actor: number): Promise<ActorClaim | undefined> {
    return this.#claiming.claimOne(worker, actor);
  }

  commitAndOffer(worker: number, turns: readonly TurnCommit[]): Promise<CommitAnswer> {
    return this.#settling.commit(worker, turns);
  }

  async commitWith(worker: number, turn: TurnCommit, effects: Effects | undefined): Promise<CommitAnswer> {
    const answer = await this.#settling.commit(worker, [turn], effects);
    if (answer.stale.length > 0) {
      throw new LeaseLost(`this worker no longer owns the turn of actor ${turn.id}; nothing of it was written`);
    }
    if (effects !== undefined) this.notify();
    return answer;
  }

  raised(actors: readonly number[]): Promise<Readonly<Record<string, Readonly<Record<string, number>>>>> {
    return this.#claiming.raised(actors);
  }

  /** Holds an actor, and opens a page. If another worker knows the state, leaves the actor to it for a second. @returns whether the actor is held */
  async reportUnknown(
    token: TurnToken,
    type: number,
    state: string,
    version: number,
    reason: string,
  ): Promise<boolean> {
    const { actor, epoch, worker } = token;
    const became = await this.#holding.hold(token, type, state, version, reason);
    if (became === 'known') {
      const turn = { id: actor, epoch, attempt: 0, kind: 'released', from: state, waitMs: 1000 } as const;
      await this.#settling.commit(worker, [turn]);
    } else this.#settling.end(worker, actor, epoch);
    return became === 'held';
  }

  guard(): Promise<void> {
    return Promise.reject(
      new NotSupported(
        'on DynamoDB a.guard(tx) has no transaction to join: write a.token with your data, and refuse lower tokens',
      ),
    );
  }

  recall(actor: number, visit: number, key: string): Promise<{ result: unknown } | undefined> {
    return this.#reads.recall(actor, visit, key);
  }

  remember(token: TurnToken, visit: number, key: string, result: string): Promise<void> {
    return this.#reads.remember(token, visit, key, result);
  }

  messages(actor: number, filter: MessageFilter): Promise<MessageRow[]> {
    return this.#reads.messages(actor, filter);
  }

  children(actor: number): Promise<ChildRecord[]> {
    return this.#reads.children(actor);
  }

  addWorker(row: WorkerRow): Promise<number> {
    return this.#workers.add(row);
  }

  beat(workers: readonly number[]): Promise<number[]> {
    return this.#workers.beat(workers);
  }

  /** Does nothing, since there are no notifications. */
  setWants(): Promise<void> {
    return Promise.resolve();
  }

  async endWorker(worker: number): Promise<void> {
    await Promise.all(this.#later);
    await this.#workers.end(worker);
  }

  async rescue(): Promise<{ actors: number; suspects: readonly number[] }> {
    const actors = await this.#rescuing.rescue();
    await this.#holding.releaseLeft();
    const suspects: number[] = [];
    for (const type of (await this.types.fresh()).keys()) {
      if (await this.#claiming.hasSuspect(type)) suspects.push(type);
    }
    return { actors, suspects };
  }

  recallClaims(worker: number, known: ReadonlyMap<number, number>): Promise<RecallResult> {
    return this.#workers.recall(worker, known);
  }

  async leave(worker: number, known: ReadonlyMap<number, number>): Promise<void> {
    await this.#workers.recall(worker, known);
  }

  offer(): Promise<void> {
    return Promise.resolve();
  }

  withdraw(): Promise<number[]> {
    return Promise.resolve([]);
  }

  wake(): Promise<void> {
    this.notify();
    return Promise.resolve();
  }

  /** Wakes the workers of this process. Workers of others learn at their next poll. @param actor  an actor of which a semaphore was raised */
  notify(actor?: number): void {
    for (const { wake, interrupt } of this.#listeners) {
      if (actor !== undefined) interrupt(actor);
      wake();
    }
  }

  listen(_: readonly number[], handlers: NewsHandlers): Promise<HandoffSubscription> {
    this.#listeners.add(handlers);
    const end = this.pages.onNotice(handlers.page);
    const stop = async (): Promise<void> => {
      end();
      this.#listeners.delete(handlers);
    };
    return Promise.resolve({ arrived: new Promise(() => {}), stop });
  }

  listenForHandoffs(): Promise<never> {
    return Promise.reject(new NotSupported('there are no notifications on DynamoDB'));
  }

  async openPage(page: PageRequest, tx: unknown): Promise<{ id: string; news: 'opened' | 'escalated' | 'none' }> {
    refuseTransaction(tx);
    return this.pages.open(page);
  }

  async resolvePage(tag: string, tx: unknown): Promise<boolean> {
    refuseTransaction(tx);
    return this.pages.resolve(tag);
  }
}

interface CreateRequest {
  readonly type?: string;
  readonly version?: number;
  readonly key?: string | undefined;
  readonly parent?: number | undefined;
}

interface IncrRequest {
  readonly actor?: number;
  readonly semaphore?: string;
  readonly n?: number;
}

interface SendRequest {
  readonly actor?: number;
  readonly name?: string;
}

function refuseTransaction(tx: unknown): void {
  if (tx === undefined) return;
  throw new InvalidInput('actors on DynamoDB take no tx: there is no transaction that stays open', { field: 'tx' });
}
