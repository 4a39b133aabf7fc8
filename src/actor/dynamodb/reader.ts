import { NotFound, NotSupported } from '../../base/errors.ts';
import { creation, type Fields, fieldsOf, written } from '../../engine/dynamodb/index.ts';
import type { ActorBackend } from '../backend.ts';
import type { ActorFilter, ActorHealth, TypeRecord } from '../postgres/reader.ts';
import type { ActorRecord, ActorStatus, ActorSummary, ActorTransition } from '../record.ts';
import type { SeenActor } from './database.ts';
import { lineFor, wakeWrite } from './database.ts';
import { type ActorHead, ALONE, absorbedFrom, F, type InboxRow } from './heads/head.ts';
import { ACTORS, actorKey, headOf, MESSAGES, sortKey, transitionOf, transitionsFrom, WORKERS } from './rows.ts';
import type { DynamoActorStore } from './store.ts';
import type { TypeRow } from './types.ts';

const NONE = 'there are no pages on DynamoDB';
const MESSAGES_COUNTED = 1000;

/** What people ask about actors on DynamoDB, and what they do to them. */
export class DynamoActorReader {
  readonly #store: DynamoActorStore;

  constructor(store: DynamoActorStore) {
    this.#store = store;
  }

  /** @throws NotFound */
  async show(actor: number): Promise<ActorRecord> {
    const record = await this.look(actor);
    if (record === undefined) throw new NotFound(`there is no actor ${actor}`);
    return record;
  }

  async look(actor: number): Promise<ActorRecord | undefined> {
    const { rows, types } = this.#store;
    const seen = await rows.look(actor);
    const { head } = seen;
    if (head === undefined) return undefined;
    const [type, messages, workers, now] = await Promise.all([
      types.fresh().then((known) => known.get(head.type) ?? types.withId(head.type)),
      rows.range(actorKey(actor), MESSAGES.first, MESSAGES.last, MESSAGES_COUNTED),
      this.#workers(),
      rows.engine.serviceTime(rows.limits),
    ]);
    const worker = workers.find(({ id }) => id === head.worker);
    const { semaphores, ended } = absorbedFrom(head, seen.inbox);
    const summary = summaryOf(actor, type, seen, now);
    const { fields } = head;
    return {
      ...summary,
      visit: head.visit,
      epoch: head.epoch,
      fields: json(fields[F.fields]),
      version: Number(fields[F.version] ?? 1),
      result: json(fields[F.result]),
      openChildren: head.children - ended,
      semaphores,
      messages: messages.filter((item) => !head.gone.includes(Number(sortKey(item).slice(2)))).length,
      timers: timersOf(fields),
      deadlineAt: null,
      finishedAt: date(fields[F.finishedAt]),
      pausedAt: date(fields[F.pausedAt]),
      typePausedAt: type.pausedAt === 0 ? null : new Date(type.pausedAt),
      statePausedAt: null,
      held: head.held ?? (head.lost === ALONE ? 'it is run alone' : null),
      lost: head.lost,
      dueInMs: head.wakeAt === undefined || head.isFinal ? null : Math.round(head.wakeAt - now),
      worker:
        head.worker === 0
          ? null
          : {
              id: String(head.worker),
              process: worker?.process ?? 'a process that is gone',
              claimedAt: new Date(Number(fields[F.claimedAt] ?? 0)),
              expiresAt: new Date((worker?.beatAt ?? now) + (worker?.leaseMs ?? 0)),
              lost: worker === undefined,
            },
      workers: workers.filter(({ types: taken }) => taken.includes(head.type)).length,
      ahead: null,
      machine: type.machine,
    };
  }

  async #workers(): Promise<readonly WorkerView[]> {
    const items = await this.#store.rows.range(WORKERS, 'w#', 'w#~', 1000);
    return items.map((item) => {
      const fields = fieldsOf(item);
      return {
        id: Number(sortKey(item).slice(2)),
        process: `${fields['h']}:${fields['i']}`,
        beatAt: Number(fields['b'] ?? 0),
        leaseMs: Number(fields['l'] ?? 0),
        types: JSON.parse(String(fields['y'] ?? '[]')),
      };
    });
  }

  async find(typeName: string, key: string): Promise<string | undefined> {
    const type = await this.#store.types.named(typeName);
    const id = await this.#store.producing.find(type.id, key);
    return id === undefined ? undefined : String(id);
  }

  /** Reads the heads of the newest ones, one by one, until there are enough: for people. */
  async list(filter: ActorFilter): Promise<ActorSummary[]> {
    const { rows, types } = this.#store;
    const all = [...(await types.fresh()).values()].filter(({ name }) => (filter.type ?? name) === name);
    const ids: { id: number; type: TypeRow }[] = [];
    for (const type of all) {
      for (let shard = 0; shard < type.shards; shard += 1) {
        const items = await rows.all(`${ACTORS}:list:${type.id}:${shard}`, '0', '9~');
        ids.push(...items.map((item) => ({ id: Number(sortKey(item)), type })));
      }
    }
    const now = await rows.engine.serviceTime(rows.limits);
    const found: ActorSummary[] = [];
    for (const { id, type } of ids.filter((one) => one.id < filter.before).sort((a, b) => b.id - a.id)) {
      if (found.length >= filter.limit) break;
      const seen = await rows.look(id);
      if (seen.head === undefined) continue;
      const summary = summaryOf(id, type, seen, now);
      if (isWanted(summary, filter)) found.push(summary);
    }
    return found;
  }

  async history(actor: number, before: number, limit: number): Promise<ActorTransition[]> {
    const first = transitionsFrom(0);
    const items = await this.#store.rows.all(actorKey(actor), first, transitionsFrom(Math.min(before - 1, 1e15 - 1)));
    return items.slice(-limit).map((item) => {
      const fields = fieldsOf(item);
      return {
        at: new Date(Number(fields['t'])),
        epoch: Number(sortKey(item).slice(2)),
        from: fields['o'] === undefined ? null : String(fields['o']),
        to: String(fields['s']),
        reason: String(fields['r']),
        attempt: Number(fields['a'] ?? 0),
        error: fields['e'] === undefined ? null : String(fields['e']),
      };
    });
  }

  fieldHistory(): Promise<never[]> {
    return Promise.resolve([]);
  }

  async types(): Promise<TypeRecord[]> {
    const all = [...(await this.#store.types.fresh()).values()];
    return all.map(({ id, name, machine, semaphores, pausedAt }) => ({
      id,
      name,
      machine,
      semaphores,
      indexes: [],
      paused: pausedAt > 0,
      pausedStates: [],
    }));
  }

  counts(): Promise<never> {
    return Promise.reject(
      new NotSupported('DynamoDB does not count actors by state: call diagram(type, { counts: false })'),
    );
  }

  health(): Promise<ActorHealth> {
    return Promise.reject(
      new NotSupported('DynamoDB has no index of what is due: look at single actors with explain()'),
    );
  }

  async pause(what: PauseRequest): Promise<boolean> {
    const { actor, type, state, resume = false } = what;
    if (actor !== undefined) return resume ? this.#resume(actor) : this.#pause(actor);
    if (state !== undefined) throw new NotSupported('on DynamoDB a type is paused as a whole, or a single actor');
    const changed = await this.#store.types.pause(type ?? '', !resume);
    this.#store.notify();
    return changed;
  }

  async #pause(actor: number): Promise<boolean> {
    const { rows } = this.#store;
    await this.show(actor);
    const now = await rows.engine.serviceTime(rows.limits);
    const after = await rows.decide(headOf(actor), (fields) =>
      fields[F.pausedAt] === undefined
        ? { expect: { [F.pausedAt]: null, [F.epoch]: fields[F.epoch] ?? null }, set: { [F.pausedAt]: now } }
        : undefined,
    );
    return after !== undefined;
  }

  /** Also of one that is held since its processes died. The head, and a row for what it says, in one transaction. */
  async #resume(actor: number): Promise<boolean> {
    for (let tries = 0; tries < 20; tries += 1) {
      const { head } = await this.#store.rows.look(actor);
      if (head === undefined) throw new NotFound(`there is no actor ${actor}`);
      if (!head.isPaused && head.held === undefined) return false;
      const set = { [F.pausedAt]: null, [F.held]: null, ...(head.held !== undefined && { [F.lost]: null }) };
      if (await this.#wakeWith(actor, head, set, head.held !== undefined)) return true;
    }
    throw new NotSupported(`actor ${actor} was changed each time it was to be resumed; try again`);
  }

  /** Due now, in whatever process takes its type. */
  async retry(actor: number): Promise<boolean> {
    for (let tries = 0; tries < 20; tries += 1) {
      const { head } = await this.#store.rows.look(actor);
      if (head === undefined) throw new NotFound(`there is no actor ${actor}`);
      if (head.worker !== 0 || head.isFinal) return false;
      if (await this.#wakeWith(actor, head, { [F.floorAt]: null }, true)) return true;
    }
    return false;
  }

  /** @param isNow  it is due now; else when the head says, or at once if something came */
  async #wakeWith(
    actor: number,
    head: ActorHead,
    set: Readonly<Record<string, string | number | null>>,
    isNow: boolean,
  ): Promise<boolean> {
    const { rows, types } = this.#store;
    const type = await types.withId(head.type);
    const now = await rows.engine.serviceTime(rows.limits);
    const isAwake = isNow || (head.signal && head.worker === 0);
    const at = isAwake ? now : head.wakeAt;
    const names = [F.epoch, F.worker, F.pausedAt, F.held, F.signal];
    const change = {
      expect: { ...Object.fromEntries(names.map((name) => [name, head.fields[name] ?? null])), [F.finishedAt]: null },
      set: { ...set, ...(head.worker === 0 && { [F.signal]: null }), ...(isAwake && { [F.wakeAt]: now }) },
    };
    const lost = F.lost in set ? 0 : head.lost;
    const line = lineFor(type.id, actor, type.shards, lost === ALONE);
    const row = { actor, kind: 'time', epoch: head.epoch, name: `hand${now}` } as const;
    const isDone = await rows.together([
      { key: headOf(actor), written: written(change) },
      ...(at === undefined || head.worker !== 0 ? [] : [wakeWrite(line, { ...row, at })]),
    ]);
    if (isDone) this.#store.notify();
    return isDone;
  }

  /** Into another state, as a new visit: a turn that runs is fenced off. */
  async move({ actor, epoch, state, reason, version }: MoveRequest, fields: string | undefined): Promise<boolean> {
    const { rows, types } = this.#store;
    const { head } = await rows.look(actor);
    if (head === undefined) throw new NotFound(`there is no actor ${actor}`);
    if (head.epoch !== epoch || head.isFinal) return false;
    const type = await types.withId(head.type);
    const now = await rows.engine.serviceTime(rows.limits);
    const set: Record<string, string | number | null> = {
      [F.epoch]: epoch + 1,
      [F.visit]: head.visit + 1,
      [F.state]: state,
      [F.enteredAt]: now,
      [F.wakeAt]: now,
      [F.attempt]: 0,
    };
    for (const name of [F.worker, F.signal, F.floorAt, F.timers, F.lost, F.held, F.error, F.cause]) set[name] = null;
    if (fields !== undefined) set[F.fields] = fields;
    if (version !== undefined) set[F.version] = version;
    const expect = { [F.epoch]: head.fields[F.epoch] ?? null, [F.finishedAt]: null };
    const row = { at: now, actor, kind: 'time', epoch: epoch + 1, name: String(epoch + 1) } as const;
    const told = creation({ t: now, o: head.state, s: state, r: `moved: ${reason}`, a: 0 });
    const isDone = await rows.together([
      { key: headOf(actor), written: written({ expect, set }) },
      { key: transitionOf(actor, epoch + 1), written: told },
      wakeWrite(lineFor(type.id, actor, type.shards), row),
    ]);
    if (isDone) this.#store.notify();
    return isDone;
  }

  pages(): Promise<never> {
    return Promise.reject(new NotSupported(NONE));
  }

  page(): Promise<never> {
    return Promise.reject(new NotSupported(NONE));
  }

  ack(): Promise<never> {
    return Promise.reject(new NotSupported(NONE));
  }

  takeNotices(): Promise<never> {
    return Promise.reject(new NotSupported(NONE));
  }

  noteDelivery(): Promise<never> {
    return Promise.reject(new NotSupported(NONE));
  }
}

/** What operators do to single actors. */
export function dynamoOperator(reader: DynamoActorReader): ActorBackend['operator'] {
  const noAnswers = (): Promise<never> =>
    Promise.reject(
      new NotSupported(
        'ask() needs notifications, which DynamoDB does not have: send(), and wait for what the actor does',
      ),
    );
  return {
    retry: (actor) => reader.retry(actor),
    move: (request, fields) => reader.move(request, fields),
    ask: noAnswers,
    lookForAnswer: noAnswers,
    endQuestion: noAnswers,
    listen: noAnswers,
    indexes: () => Promise.resolve([]),
    fillIndex: () => Promise.resolve(),
  };
}

interface WorkerView {
  readonly id: number;
  readonly process: string;
  readonly beatAt: number;
  readonly leaseMs: number;
  readonly types: readonly number[];
}

interface PauseRequest {
  readonly actor?: number | undefined;
  readonly type?: string | undefined;
  readonly state?: string | undefined;
  readonly resume?: boolean | undefined;
}

interface MoveRequest {
  readonly actor: number;
  readonly epoch: number;
  readonly state: string;
  readonly reason: string;
  readonly version: number | undefined;
}

function isWanted({ type, state, status, parent, id }: ActorSummary, filter: ActorFilter): boolean {
  if (!filter.final && status === 'final') return false;
  if (filter.parent !== undefined && parent !== String(filter.parent)) return false;
  return (
    (filter.type ?? type) === type &&
    (filter.state ?? state) === state &&
    (filter.status ?? status) === status &&
    Number(id) < filter.before
  );
}

function summaryOf(actor: number, type: TypeRow, { head, inbox }: SeenActor, now: number): ActorSummary {
  const fields = head?.fields ?? {};
  return {
    id: String(actor),
    type: type.name,
    state: head?.state ?? '',
    status: head === undefined ? 'final' : statusOf(head, inbox, type, now),
    key: fields[F.key] === undefined ? null : String(fields[F.key]),
    parent: fields[F.parent] === undefined ? null : String(fields[F.parent]),
    attempt: head?.attempt ?? 0,
    error: fields[F.error] === undefined ? null : String(fields[F.error]),
    enteredAt: new Date(Number(fields[F.enteredAt] ?? 0)),
    wakeAt: date(fields[F.wakeAt]),
    createdAt: new Date(Number(fields[F.createdAt] ?? 0)),
  };
}

function statusOf(head: ActorHead, inbox: readonly InboxRow[], type: TypeRow, now: number): ActorStatus {
  if (head.isFinal) return 'final';
  if (head.worker !== 0) return 'running';
  if (head.isPaused || type.pausedAt > 0) return 'paused';
  if (head.held !== undefined) return 'held';
  const isRaised = inbox.some(({ name, semaphore }) => semaphore !== undefined && !head.absorbed.includes(name));
  if (isRaised && head.floorAt <= now) return 'due';
  if (head.wakeAt === undefined) return 'hibernating';
  if (head.wakeAt <= now) return 'due';
  return head.attempt > 0 ? 'backing off' : 'napping';
}

function timersOf(fields: Fields): Record<string, Date> {
  const table: Record<string, readonly [number, number | null]> = JSON.parse(String(fields[F.timers] ?? '{}'));
  return Object.fromEntries(
    Object.entries(table).flatMap(([name, [, due]]) => (due === null ? [] : [[name, new Date(due)]])),
  );
}

function date(value: string | number | undefined): Date | null {
  return value === undefined ? null : new Date(Number(value));
}

function json(value: string | number | undefined): unknown {
  return value === undefined ? null : JSON.parse(String(value));
}
