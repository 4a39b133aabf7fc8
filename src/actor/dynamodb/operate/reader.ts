import { NotFound } from '../../../base/errors.ts';
import { fieldsOf, type Item } from '../../../engine/dynamodb/index.ts';
import type { ActorFilter, ActorHealth, Notice, PageFilter, TypeRecord } from '../../postgres/reader.ts';
import type { ActorRecord, ActorSummary, ActorTransition, PageRecord } from '../../record.ts';
import { type ActorHead, ALONE, absorbedFrom, F } from '../heads/head.ts';
import type { Notices } from '../pages/notices.ts';
import { actorKey, CHILDREN, listLineOf, MESSAGES, sortKey, transitionsFrom, WORKERS } from '../rows.ts';
import type { DynamoActorStore } from '../store.ts';
import { isOver } from '../work/turn-reads.ts';
import { healthOf } from './health.ts';
import type { DynamoActorOperator } from './operator.ts';
import { date, isWanted, json, summaryOf, timersOf } from './summary.ts';

const MESSAGES_COUNTED = 1000;
const COUNTED = 1000;
const COUNTED_AT_ONCE = 25;

/** The calls by which people read actors on DynamoDB, and pause them. */
export class DynamoActorReader {
  readonly #store: DynamoActorStore;
  readonly #operator: DynamoActorOperator;

  constructor(store: DynamoActorStore, operator: DynamoActorOperator) {
    this.#store = store;
    this.#operator = operator;
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
      messages: messages.filter((item) => isUnread(item, head, now)).length,
      timers: timersOf(fields),
      deadlineAt: date(fields[F.deadlineAt]),
      finishedAt: date(fields[F.finishedAt]),
      pausedAt: date(fields[F.pausedAt]),
      typePausedAt: type.pausedAt === 0 ? null : new Date(type.pausedAt),
      statePausedAt: date(type.pausedStates[head.state]),
      held: head.held ?? (head.lost === ALONE ? 'it is run alone' : null),
      lost: head.lost,
      dueInMs: head.wakeAt === undefined || head.isFinal ? null : Math.round(head.wakeAt - now),
      worker:
        head.worker === 0
          ? null
          : {
              id: String(head.worker),
              process: worker?.process ?? 'a process that no longer exists',
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

  /** Reads the newest actors, one by one, until it has found enough. It is meant for people. */
  async list(filter: ActorFilter): Promise<ActorSummary[]> {
    const { rows, types } = this.#store;
    const ids = filter.parent === undefined ? await this.#idsOf(filter.type) : await this.#childrenOf(filter.parent);
    const now = await rows.engine.serviceTime(rows.limits);
    const found: ActorSummary[] = [];
    for (const id of ids.filter((one) => one < filter.before).sort((a, b) => b - a)) {
      if (found.length >= filter.limit) break;
      const seen = await rows.look(id);
      if (seen.head === undefined) continue;
      const summary = summaryOf(id, await types.withId(seen.head.type), seen, now);
      if (isWanted(summary, filter)) found.push(summary);
    }
    return found;
  }

  /** @param type  undefined: the actors of all types */
  async #idsOf(type: string | undefined): Promise<number[]> {
    const { rows, types } = this.#store;
    const ids: number[] = [];
    for (const { id, name, shards } of (await types.fresh()).values()) {
      if ((type ?? name) !== name) continue;
      for (let shard = 0; shard < shards; shard += 1) {
        const items = await rows.all(listLineOf(id, shard), '0', '9~');
        ids.push(...items.map((item) => Number(sortKey(item))));
      }
    }
    return ids;
  }

  async #childrenOf(actor: number): Promise<number[]> {
    const items = await this.#store.rows.all(actorKey(actor), CHILDREN.first, CHILDREN.last);
    return items.map((item) => Number(sortKey(item).slice(2)));
  }

  async history(actor: number, before: number, limit: number): Promise<ActorTransition[]> {
    if (before <= 0) return []; // nothing is before the row of the creation, and no key names it
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
    return all.map(({ id, name, machine, semaphores, pausedAt, pausedStates }) => ({
      id,
      name,
      machine,
      semaphores,
      indexes: [],
      paused: pausedAt > 0,
      pausedStates: Object.keys(pausedStates).sort(),
    }));
  }

  /** Counts by state the newest thousand actors of the type. Final actors are read, but not counted. One read for each actor. */
  async counts(type: number): Promise<Readonly<Record<string, number>>> {
    const { name } = await this.#store.types.withId(type);
    const ids = (await this.#idsOf(name)).sort((a, b) => b - a).slice(0, COUNTED);
    const counts: Record<string, number> = {};
    for (let first = 0; first < ids.length; first += COUNTED_AT_ONCE) {
      const some = ids.slice(first, first + COUNTED_AT_ONCE);
      const heads = await Promise.all(some.map((id) => this.#store.rows.head(id)));
      for (const head of heads) {
        if (head !== undefined && !head.isFinal) counts[head.state] = (counts[head.state] ?? 0) + 1;
      }
    }
    return counts;
  }

  health(): Promise<ActorHealth> {
    return healthOf(this.#store);
  }

  async pause(what: PauseRequest): Promise<boolean> {
    const { actor, type, state, resume = false } = what;
    if (actor !== undefined) return resume ? this.#operator.resume(actor) : this.#pause(actor);
    const changed = await this.#store.types.pause(type ?? '', !resume, state);
    // Even if the type says so already, since a process may have died before it released all actors.
    if (state !== undefined && resume)
      await this.#store.statePauses.release(await this.#store.types.named(type ?? ''), state);
    this.#store.notify();
    return changed;
  }

  async #pause(actor: number): Promise<boolean> {
    await this.show(actor);
    return this.#operator.pause(actor);
  }

  pages(filter: PageFilter): Promise<PageRecord[]> {
    return this.#store.pages.list(filter);
  }

  /** @throws NotFound */
  page(id: number): Promise<PageRecord> {
    return this.#store.pages.show(id);
  }

  ack(id: number, by: string | undefined): Promise<boolean> {
    return this.#store.pages.ack(id, by);
  }

  takeNotices(limit: number): Promise<Notice[]> {
    return this.#store.notices.takeNotices(limit);
  }

  noteDelivery(note: Parameters<Notices['noteDelivery']>[0]): Promise<void> {
    return this.#store.notices.noteDelivery(note);
  }
}

function isUnread(item: Item, { gone }: ActorHead, now: number): boolean {
  return !gone.includes(Number(sortKey(item).slice(2))) && !isOver(fieldsOf(item), now);
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
