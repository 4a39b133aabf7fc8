import { randomInt } from 'node:crypto';
import { InvalidInput, LeaseLost, NotSupported } from '../../base/errors.ts';
import type { HandoffSubscription, RecallResult } from '../../base/handoff/handoff.ts';
import { sleep } from '../../base/time/clock.ts';
import {
  creation,
  type DynamoEngine,
  Expression,
  fieldsOf,
  Liveness,
  num,
  workerOf,
  written,
} from '../../engine/dynamodb/index.ts';
import type { ActorDefinition } from '../definition.ts';
import type { NewsHandlers } from '../postgres/listening.ts';
import type {
  ActorClaim,
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
import { ActorRows, lineFor, wakeWrite } from './database.ts';
import { ALONE, F } from './heads/head.ts';
import { Producing } from './producing.ts';
import { actorKey, effectOf, headOf, MESSAGES, sortKey, WORKERS } from './rows.ts';
import { Types } from './types.ts';
import { Claiming, type HeldTurn } from './work/claiming.ts';
import { Notes } from './work/notes.ts';
import { Rescuing } from './work/rescue.ts';
import { Settling } from './work/settling.ts';

const TIMEOUT_MS = 30_000;

/** The requests of turns, workers and producers. Each may be carried out twice: see docs/decisions/029-actors-on-dynamodb.md. */
export class DynamoActorStore implements TurnStore {
  readonly engine: TurnStore['engine'];
  readonly rows: ActorRows;
  readonly types: Types;
  readonly liveness: Liveness;
  readonly producing: Producing;
  readonly #dynamo: DynamoEngine;
  readonly #shards: number;
  readonly #notes: Notes;
  readonly #held = new Map<number, HeldTurn>();
  readonly #claiming: Claiming;
  readonly #settling: Settling;
  readonly #rescuing: Rescuing;
  readonly #listeners = new Set<NewsHandlers>();
  /** Rows that are being removed. */
  readonly #later = new Set<Promise<unknown>>();

  constructor(engine: DynamoEngine, shards: number) {
    this.#dynamo = engine;
    this.#shards = shards;
    this.rows = new ActorRows(engine, TIMEOUT_MS);
    this.types = new Types(this.rows);
    this.liveness = new Liveness(this.rows, WORKERS);
    this.producing = new Producing(this.rows, this.types);
    this.#notes = new Notes(this.rows);
    const later = (work: Promise<unknown>): void => this.#do(work);
    this.#claiming = new Claiming(this.rows, this.types, this.#notes, this.#held, later);
    this.#settling = new Settling(this.rows, this.#notes, this.producing, this.#held, later);
    this.#rescuing = new Rescuing(this.rows, this.types, this.#notes, this.liveness);
    this.engine = {
      isStopped: false,
      options: { logger: engine.logger },
      address: () => Promise.resolve(`the table "${engine.table}" of DynamoDB`),
      isTransient: (error) => engine.isTransient(error),
    };
  }

  /** What has no hurry. A row that is left is removed by the worker that finds it. */
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
    if (parent !== undefined) throw new NotSupported('actors on DynamoDB have no children: leave out parent');
    const made = await this.producing.create({ type, version, key }, fields);
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
      throw new LeaseLost(`the turn of actor ${turn.id} is somebody else's by now; nothing of it was written`);
    }
    if (effects !== undefined) this.notify();
    return answer;
  }

  raised(actors: readonly number[]): Promise<Readonly<Record<string, Readonly<Record<string, number>>>>> {
    return this.#claiming.raised(actors);
  }

  /** Given back, and looked at again in a second: by a program that knows it, or by this one. @returns never held */
  async reportUnknown({ actor, epoch, worker }: TurnToken, _: number, state: string): Promise<boolean> {
    const turn = { id: actor, epoch, attempt: 0, kind: 'released', from: state, waitMs: 1000 } as const;
    await this.#settling.commit(worker, [turn]);
    return false;
  }

  guard(): Promise<void> {
    return Promise.reject(
      new NotSupported(
        'on DynamoDB a.guard(tx) has no transaction to join: give a.token to what you write, and refuse lower ones',
      ),
    );
  }

  async recall(actor: number, visit: number, key: string): Promise<{ result: unknown } | undefined> {
    const item = await this.rows.get(effectOf(actor, visit, key));
    return item === undefined ? undefined : { result: JSON.parse(String(fieldsOf(item)['r'])) };
  }

  /** In one transaction with the check of the turn. @throws LeaseLost */
  async remember({ actor, epoch, worker }: TurnToken, visit: number, key: string, result: string): Promise<void> {
    const checked = new Expression().whenIs(F.epoch, num(epoch)).whenIs(F.worker, num(worker)).write();
    const written = creation({ r: result });
    const writes = [
      { key: effectOf(actor, visit, key), written },
      { key: headOf(actor), checked },
    ];
    for (let tries = 1; ; tries += 1) {
      if (await this.rows.together(writes)) return;
      // An earlier try has come through.
      if ((await this.recall(actor, visit, key)) !== undefined) return;
      const head = await this.rows.head(actor);
      if (head?.epoch !== epoch || head.worker !== worker) break;
      // Another write of the head was under way.
      await sleep(Math.random() * 5 * tries);
    }
    throw new LeaseLost(
      `turn ${epoch} of actor ${actor} is no longer current: its lease ran out and somebody else took over`,
    );
  }

  async messages(actor: number, { name, limit, except }: MessageFilter): Promise<MessageRow[]> {
    const items = await this.rows.all(actorKey(actor), MESSAGES.first, MESSAGES.last);
    const gone = new Set(except);
    return items
      .map((item) => ({ id: String(Number(sortKey(item).slice(2))), fields: fieldsOf(item) }))
      .filter(({ id, fields }) => !gone.has(id) && (name === undefined || fields['n'] === name))
      .slice(0, limit)
      .map(({ id, fields }) => ({
        id,
        name: String(fields['n']),
        payload: JSON.parse(String(fields['y'])),
        at: new Date(Number(fields['t'])),
        isAsked: false,
      }));
  }

  children(): Promise<never[]> {
    return Promise.resolve([]);
  }

  /** Its id is random: no worker is ever taken for another one. */
  async addWorker({ host, pid, concurrency, leaseMs, types }: WorkerRow): Promise<number> {
    const worker = randomInt(1, 2 ** 47);
    const fields = { b: 0, l: leaseMs, h: host, i: pid, c: concurrency, y: JSON.stringify(types) };
    await this.rows.put(workerOf(WORKERS, worker), fields);
    this.liveness.note(worker, true);
    return worker;
  }

  /** A beat changes the row, on condition that it is there: a worker that was taken for dead learns so. */
  async beat(workers: readonly number[]): Promise<number[]> {
    const alive: number[] = [];
    for (const worker of workers) {
      const time = await this.#dynamo.serviceTime(this.rows.limits);
      const beat = new Expression().set('b', num(time)).when('attribute_exists(pk)').write();
      const { isDone } = await this.#dynamo.update(workerOf(WORKERS, worker), beat, 'NONE', this.rows.limits);
      this.liveness.note(worker, isDone);
      if (isDone) alive.push(worker);
    }
    return alive;
  }

  /** There are no notifications to wish for. */
  setWants(): Promise<void> {
    return Promise.resolve();
  }

  /** Its notes stay while they name an actor that it has, for the rescue to find. */
  async endWorker(worker: number): Promise<void> {
    await Promise.all(this.#later);
    await this.rows.drop(workerOf(WORKERS, worker));
    this.liveness.note(worker, false);
  }

  async rescue(): Promise<{ actors: number; suspects: readonly number[] }> {
    const actors = await this.#rescuing.rescue();
    const suspects: number[] = [];
    for (const type of (await this.types.fresh()).keys()) {
      if (await this.#claiming.hasSuspect(type)) suspects.push(type);
    }
    return { actors, suspects };
  }

  /** Gives back the actors that the worker holds and does not know. */
  async recallClaims(worker: number, known: ReadonlyMap<number, number>): Promise<RecallResult> {
    let lost = 0;
    for (const note of await this.#notes.read(worker)) {
      for (const [actor, epoch] of note.actors) {
        const head = await this.rows.head(actor);
        if (head === undefined || head.worker !== worker || head.epoch !== epoch + 1) continue;
        if (known.get(actor) === head.epoch) continue;
        await this.#giveBack(actor, worker);
        lost += 1;
      }
    }
    return { lost, offers: [] };
  }

  async leave(worker: number, known: ReadonlyMap<number, number>): Promise<void> {
    await this.recallClaims(worker, known);
  }

  /** Uncharged: no turn of it has begun. */
  async #giveBack(actor: number, worker: number): Promise<void> {
    const head = await this.rows.head(actor);
    if (head === undefined || head.worker !== worker) return;
    const { type: id, epoch, attempt, lost } = head;
    const type = await this.types.withId(id);
    const now = await this.#dynamo.serviceTime(this.rows.limits);
    const set = { [F.epoch]: epoch + 1, [F.worker]: null, [F.wakeAt]: now, [F.attempt]: Math.max(attempt - 1, 0) };
    const change = { expect: { [F.epoch]: epoch, [F.worker]: worker }, set };
    const row = { at: now, actor, kind: 'time', epoch: epoch + 1, name: String(epoch + 1) } as const;
    await this.rows.together([
      { key: headOf(actor), written: written(change) },
      wakeWrite(lineFor(id, actor, type.shards, lost === ALONE), row),
    ]);
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

  /** Wakes workers of this process: those of others find it at their next poll. @param actor  of which a semaphore was raised */
  notify(actor?: number): void {
    for (const { wake, interrupt } of this.#listeners) {
      if (actor !== undefined) interrupt(actor);
      wake();
    }
  }

  listen(_: readonly number[], handlers: NewsHandlers): Promise<HandoffSubscription> {
    this.#listeners.add(handlers);
    const stop = (): Promise<void> => Promise.resolve(void this.#listeners.delete(handlers));
    return Promise.resolve({ arrived: new Promise(() => {}), stop });
  }

  listenForHandoffs(): Promise<never> {
    return Promise.reject(new NotSupported('there are no notifications on DynamoDB'));
  }

  openPage(): Promise<never> {
    return Promise.reject(new NotSupported('there are no pages on DynamoDB'));
  }

  resolvePage(): Promise<never> {
    return Promise.reject(new NotSupported('there are no pages on DynamoDB'));
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
