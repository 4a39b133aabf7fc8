/** Enqueues for which the table decides whether their job exists already. They add one job after another. */
import { InvalidInput, NotSupported } from '../../../base/errors.ts';
import type { PartialWrite } from '../../../engine/dynamodb/index.ts';
import { checkOwnLetter } from '../../declare/dead-letter.ts';
import { kindIdOf } from '../../declare/kind-id.ts';
import type { UniqueRule } from '../../declare/unique.ts';
import type { Definition } from '../../definition.ts';
import { shardOf } from '../../enqueue.ts';
import type { JobStatus } from '../../job.ts';
import { type AfterFailure, type OwnOptions, ownOptions } from '../../job-options.ts';
import type { DecidedJobs, NewJobs, QueueIds, UniqueJobs } from '../../store.ts';
import type { QueueRows } from '../database.ts';
import { statusOfJob } from '../operate/standing.ts';
import type { Waits } from '../work/waits.ts';
import { AFTER_OTHERS, endsOf, readTerms, type WaitTerms } from './after.ts';
import { Homes } from './homes.ts';
import { addJobs, addWith } from './producing.ts';
import {
  addUnique,
  findUnique,
  type OnceRequest,
  placeOfOnce,
  placeOfUnique,
  type UniqueFound,
  type UniquePlace,
} from './unique.ts';

/** A request as a producer makes it: see `requestOptions` in job-options.ts. */
interface JobRequest extends OwnOptions {
  readonly kind?: string;
  readonly key?: string | null;
  readonly payload?: unknown;
  readonly priority?: number;
  readonly runAt?: string;
  /** `250 milliseconds`. */
  readonly delay?: string;
  readonly after?: readonly unknown[];
  readonly afterError?: AfterFailure;
  readonly afterCancel?: AfterFailure;
  /** True: one job of a key, ever. Undefined: the rule of its kind. */
  readonly unique?: boolean | UniqueRule;
  /** A repetition of the request gets the job of the first time as its answer. */
  readonly once?: OnceRequest;
}

interface EnqueueAnswer {
  readonly id: string;
  readonly status: JobStatus;
  readonly duplicate: boolean;
}

const ONE_EVER: UniqueRule = { by: 'key', while: 'ever' };

export class Deciding {
  readonly #rows: QueueRows;
  readonly #definition: Definition;
  readonly #ids: () => Promise<QueueIds>;
  readonly #waits: Waits | undefined;
  readonly #homes: Homes;

  constructor(rows: QueueRows, definition: Definition, ids: () => Promise<QueueIds>, waits?: Waits) {
    this.#waits = waits;
    this.#homes = new Homes(rows, definition);
    this.#rows = rows;
    this.#definition = definition;
    this.#ids = ids;
  }

  async enqueue(request: object, trace: string | undefined): Promise<EnqueueAnswer> {
    const given: JobRequest = request;
    const terms = readTerms(this.#rows.queue, given, this.#timeOf(given));
    const batch = await this.#batchOf(given, terms);
    const places = this.#placesOf(given);
    if (terms !== undefined) return this.#addWaiting(batch, terms, places, trace);
    if (places.length === 0) {
      const [id] = await addJobs(this.#rows, batch, trace, this.#definition.keyed);
      return { id: String(id), status: 'new', duplicate: false };
    }
    const { id, status, isDuplicate } = await addUnique(this.#rows, this.#definition, batch, places, trace);
    return { id: String(id), status, duplicate: isDuplicate };
  }

  /**
   * Adds a job together with other writes; or, if the job exists already, makes only the other writes.
   * @returns undefined if the condition of a write did not hold, or something has changed meanwhile, so read again
   */
  async enqueueWith(request: object, others: readonly PartialWrite[]): Promise<string | undefined> {
    const given: JobRequest = request;
    const batch = await this.#batchOf(given, undefined);
    const found = await this.#found(given);
    const there = found.find((one) => one.there !== undefined)?.there;
    if (there !== undefined) return (await this.#rows.together(others)) ? String(there.id) : undefined;
    const id = await addWith(this.#rows, batch, undefined, this.#definition.keyed, (added) => [
      ...found.map(({ mark }) => mark(added)),
      ...others,
    ]);
    return id === undefined ? undefined : String(id);
  }

  /**
   * Adds a job together with writes of other rows that name it; or finds the existing job, and writes nothing.
   * @returns undefined if the condition of another write did not hold, or something has changed meanwhile, so read again
   */
  async enqueueInto(
    request: object,
    others: (id: number) => readonly PartialWrite[],
  ): Promise<EnqueueAnswer | undefined> {
    const given: JobRequest = request;
    const terms = readTerms(this.#rows.queue, given, this.#timeOf(given));
    const batch = await this.#batchOf(given, terms);
    const found = await this.#found(given);
    const there = found.find((one) => one.there !== undefined)?.there;
    if (there !== undefined) return { id: String(there.id), status: there.status, duplicate: true };
    if (terms !== undefined) await endsOf(this.#homes, terms.parents);
    const marks = (added: number): PartialWrite[] => [...found.map(({ mark }) => mark(added)), ...others(added)];
    const id = await addWith(this.#rows, batch, undefined, this.#definition.keyed, marks, terms);
    return id === undefined ? undefined : { id: String(id), status: 'new', duplicate: false };
  }

  #found(given: JobRequest): Promise<UniqueFound[]> {
    return Promise.all(this.#placesOf(given).map((place) => findUnique(this.#rows, this.#definition, place)));
  }

  #placesOf(given: JobRequest): UniquePlace[] {
    const { kind = '', payload = null } = given;
    const rule = this.#ruleOf(given);
    const key = given.key ?? undefined;
    return [
      ...(given.once === undefined ? [] : [placeOfOnce(given.once)]),
      ...(rule === undefined ? [] : [placeOfUnique(this.#rows.queue, kind, rule, { key, payload })]),
    ];
  }

  /** @throws NotFound  a parent does not exist */
  async #addWaiting(
    batch: NewJobs,
    terms: WaitTerms,
    places: readonly UniquePlace[],
    trace: string | undefined,
  ): Promise<EnqueueAnswer> {
    const { size } = await endsOf(this.#homes, terms.parents);
    const { id, ...added } = await addUnique(this.#rows, this.#definition, batch, places, trace, terms);
    if (added.isDuplicate) return { id: String(id), status: added.status, duplicate: true };
    if (size < terms.parents.length) return { id: String(id), status: 'new', duplicate: false };
    await this.#waits?.lookAtJob(id);
    return { id: String(id), status: await statusOfJob(this.#rows, this.#definition, id), duplicate: false };
  }

  /** Adds jobs in order. Jobs without a rule that follow each other are added together. */
  async addMany(batch: UniqueJobs, trace: string | undefined): Promise<DecidedJobs> {
    const { kindName } = await this.#ids();
    const payloads: unknown[] = JSON.parse(batch.payloads);
    const rules = new Map(batch.rules.map(({ kind, ...rule }) => [kind, rule]));
    const kindOf = (at: number): number => one(batch.kinds, at) ?? 0;
    const ids: string[] = [];
    const duplicates: number[] = [];
    for (let at = 0; at < batch.n; ) {
      const rule = rules.get(kindOf(at));
      let end = at + 1;
      if (rule === undefined) {
        const isLike = (other: number): boolean =>
          rules.get(kindOf(other)) === undefined && one(batch.shards, other) === one(batch.shards, at);
        while (end < batch.n && isLike(end)) end += 1;
        const added = await addJobs(this.#rows, part(batch, payloads, at, end), trace, this.#definition.keyed);
        ids.push(...added.map(String));
      } else {
        const job = { key: batch.keys?.[at] ?? undefined, payload: payloads[at] ?? null };
        const place = placeOfUnique(this.#rows.queue, kindName.get(kindOf(at)) ?? '', rule, job);
        const some = part(batch, payloads, at, end);
        const { id, isDuplicate } = await addUnique(this.#rows, this.#definition, some, [place], trace);
        ids.push(String(id));
        if (isDuplicate) duplicates.push(at);
      }
      at = end;
    }
    return { ids, duplicates };
  }

  /** @throws InvalidInput  the job is unique by its key, but has none @throws NotSupported  a rule with `replace` */
  #ruleOf({ kind = '', key, unique }: JobRequest): UniqueRule | undefined {
    const own = unique === true ? ONE_EVER : unique === false ? undefined : unique;
    const rule = unique === undefined ? this.#definition.kinds.get(kind)?.unique : own;
    if (rule?.replace === true) {
      throw new NotSupported('on DynamoDB unique has no replace: change the job that waits by update()');
    }
    if (rule?.by === 'key' && (key ?? undefined) === undefined) {
      throw new InvalidInput(`the job is unique by its key, and has none: give it a key`, { field: 'key' });
    }
    return rule;
  }

  /** The earliest time at which a job that comes after others may run; 0: it has no time. */
  #timeOf({ runAt, delay }: JobRequest): number {
    if (runAt !== undefined) return Date.parse(runAt);
    return delay === undefined ? 0 : Math.ceil(this.#rows.engine.now() + Number.parseFloat(delay));
  }

  async #batchOf(given: JobRequest, terms: WaitTerms | undefined): Promise<NewJobs> {
    const { kindId } = await this.#ids();
    const { kind = '', payload = null, priority = 0, runAt, delay } = given;
    const key = given.key ?? undefined;
    const { schedule: _, ...options } = given;
    const own = ownOptions(options);
    checkOwnLetter(this.#definition, { onError: given.onError, key });
    const { shards } = this.#definition;
    const due = terms === undefined ? runAt : AFTER_OTHERS;
    return {
      shard: key === undefined ? Math.floor(Math.random() * shards) : shardOf(key, shards),
      n: 1,
      kinds: [kindIdOf(kind, { kindId })],
      priorities: [priority],
      payloads: JSON.stringify([payload]),
      keys: key === undefined ? null : [key],
      runAt: due === undefined ? null : [new Date(due)],
      delays: delay === undefined || terms !== undefined ? null : [Number.parseFloat(delay)],
      options: own === undefined ? null : JSON.stringify([own]),
    };
  }
}

/** An element of a list. If the list has one element, that stands for all. */
function one<T>(all: readonly T[], at: number): T | undefined {
  return all.length === 1 ? all[0] : all[at];
}

function part(batch: UniqueJobs, payloads: readonly unknown[], from: number, to: number): NewJobs {
  const cut = <T>(all: readonly T[]): readonly T[] => (all.length === 1 ? all : all.slice(from, to));
  const of = <T>(all: readonly T[] | null): readonly T[] | null => (all === null ? null : all.slice(from, to));
  const options: unknown[] = batch.options === null ? [] : JSON.parse(batch.options);
  return {
    shard: one(batch.shards, from) ?? 0,
    n: to - from,
    kinds: cut(batch.kinds),
    priorities: cut(batch.priorities),
    payloads: JSON.stringify(payloads.slice(from, to)),
    keys: of(batch.keys),
    runAt: of(batch.runAt),
    delays: of(batch.delays),
    options: batch.options === null ? null : JSON.stringify(options.slice(from, to)),
  };
}
