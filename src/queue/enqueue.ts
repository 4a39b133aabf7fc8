import { createHash } from 'node:crypto';
import { InvalidInput } from '../base/errors.ts';
import { checkOptions, custom, optional } from '../base/options/options.ts';
import { refusal, show } from '../base/options/refusal.ts';
import { validate } from '../base/options/schema.ts';
import { toJson } from '../base/storable.ts';
import { isTraceparent } from '../base/telemetry.ts';
import { type OpenTransaction, openTransaction } from '../engine/postgres/index.ts';
import { checkOwnLetter } from './declare/dead-letter.ts';
import { kindIdOf } from './declare/kind-id.ts';
import { isOneEver } from './declare/unique.ts';
import type { Definition } from './definition.ts';
import type { JobStatus } from './job.ts';
import {
  checkGroup,
  type FlowRow,
  isDecided,
  type JobInput,
  kindOf,
  type Row,
  readJob,
  refuseTime,
  refuseUnique,
  requireKey,
} from './job-input.ts';
import { type JobOptions, jobShape, ownOptions, refuseTwoTimes } from './job-options.ts';
import type { DecidedJobs, NewJobs, QueueIds, QueueStore, UniqueJobs } from './store.ts';
import { sending } from './tracing.ts';

export interface EnqueueOptions extends JobOptions {
  /** Your own transaction, of any driver: the job exists if and only if the transaction commits. */
  readonly tx?: OpenTransaction | undefined;
  /**
   * The trace of the job, in the form of W3C Trace Context; the span of its run links to it. Default: the active trace, if
   * OpenTelemetry is loaded.
   */
  readonly traceparent?: string | undefined;
}

export interface EnqueueResult {
  readonly id: string;
  readonly status: JobStatus;
  /** True if a job of a unique kind existed already; `id` and `status` are then those of the existing job. */
  readonly duplicate: boolean;
}

/** The ids of many jobs, in their order. */
export interface EnqueuedIds extends Array<string> {
  /** The indexes, from 0, of the jobs that existed already: their ids are those of the existing jobs. */
  readonly duplicates: readonly number[];
}

const TRACEPARENT = 'a traceparent such as "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"';
const traceparent = custom(TRACEPARENT, (value, place) => {
  if (typeof value === 'string' && isTraceparent(value)) return value;
  throw refusal(place, value, TRACEPARENT);
});

const shape = { ...jobShape, tx: openTransaction, traceparent: optional(traceparent) };
const manyShape = { tx: openTransaction };

/** A bulk enqueue is sent in pieces of this many jobs. Each piece is one statement, which writes all of its jobs or none. */
const AT_ONCE = 1000;

/** The part of a store that a producer needs. */
export type ProducerStore = Pick<QueueStore, 'add' | 'enqueue' | 'enqueueAll' | 'addUnique' | 'addAwaited' | 'addInto'>;

/** Checks jobs and writes them. */
export class Producer {
  readonly #store: ProducerStore;
  readonly #definition: Definition;
  readonly #register: () => Promise<QueueIds>;
  #turn = 0;

  constructor(store: ProducerStore, definition: Definition, register: () => Promise<QueueIds>) {
    this.#store = store;
    this.#definition = definition;
    this.#register = register;
  }

  /**
   * @param channel  the channel of this process, if it waits for the job; the answer says whether the wait began with the enqueue
   */
  async one(
    kindName: string,
    payload: unknown,
    options: EnqueueOptions,
    channel?: string,
  ): Promise<EnqueueResult & { isAwaited?: boolean }> {
    const given = checkOptions('enqueue', options, shape);
    const { key: name, group, onError, priority, runAt, delay, tx, traceparent } = given;
    refuseTwoTimes(given);
    const kind = kindOf(this.#definition, kindName, undefined);
    await validate(kind.schema, payload, 'payload');
    requireKey(this.#definition, kind, name);
    checkGroup(this.#definition, kind, { group, key: name });
    checkOwnLetter(this.#definition, { onError, key: name });
    refuseTime(kind, runAt ?? delay);
    const registered = await this.#register();
    const row: Row = {
      at: 0,
      kind,
      key: name ?? null,
      group: group ?? null,
      priority,
      runAt: runAt ?? null,
      delay: delay ?? kind.debounce?.waitMs ?? null,
      own: ownOptions(given),
      payload: toJson(payload, 'payload', 'payload', kind.maxBytes),
    };
    const { after = [], afterError, afterCancel } = given;
    if (isDecided(row) || after.length > 0) {
      const request = { ...this.#request(row), after, afterError, afterCancel };
      return sending(this.#definition.name, 1, traceparent, (trace) => this.#store.enqueue(request, tx, trace));
    }
    const [shard, rows] = [...this.#byShard([row], 0)][0] ?? [0, [row]];
    const batch = this.#batch(shard, rows, registered);
    const { id, ...rest } = await sending(this.#definition.name, 1, traceparent, async (trace) => {
      if (channel !== undefined && tx === undefined && trace === undefined)
        return this.#store.addAwaited(registered.queue, batch, channel);
      const [added] = await this.#store.add(registered.queue, batch, tx, trace);
      return { id: added };
    });
    return { id: String(id), status: 'new', duplicate: false, ...rest };
  }

  /** Checks a job like `one`, but writes nothing. @throws InvalidInput, NotFound */
  async check(kindName: string, payload: unknown, name: string | undefined): Promise<void> {
    const kind = kindOf(this.#definition, kindName, undefined);
    await validate(kind.schema, payload, 'payload');
    requireKey(this.#definition, kind, name);
  }

  /** Returns a payload as JSON, checked as for a job of this kind. @throws InvalidInput, NotFound */
  async json(kindName: string, payload: unknown): Promise<string> {
    const kind = kindOf(this.#definition, kindName, undefined);
    await validate(kind.schema, payload, 'payload');
    return toJson(payload, 'payload', 'payload', kind.maxBytes);
  }

  /** For pawl.enqueue(), which decides about the job. */
  #request({ kind, key, priority, runAt, delay, own, payload }: Row): object {
    const json: unknown = JSON.parse(payload);
    const wait = delay === null || kind.debounce !== undefined ? undefined : `${delay} milliseconds`;
    const when = { key, priority, runAt: runAt?.toISOString(), delay: wait };
    // Each request carries the rule, because another version of the program may have declared the kind without it.
    return {
      ...own,
      ...when,
      queue: this.#definition.name,
      kind: kind.name,
      payload: json,
      unique: kind.unique ?? false,
    };
  }

  /** Writes each thousand of jobs as a whole or not at all; with `tx`, all of them. @returns ids in the same order */
  async many(jobs: readonly JobInput[], options: { readonly tx?: OpenTransaction | undefined }): Promise<EnqueuedIds> {
    const { tx } = checkOptions('enqueueMany', options, manyShape);
    if (!Array.isArray(jobs)) {
      throw new InvalidInput(`enqueueMany takes an array of jobs, but was given ${show(jobs)}`, { field: 'jobs' });
    }
    // Everything is checked before anything is written.
    const rows: Row[] = [];
    for (let index = 0; index < jobs.length; index += 1) {
      const row = readJob(this.#definition, jobs[index], index);
      // Most schemas are synchronous, and an `await` would be a sixth of the time per job here.
      rows.push(row instanceof Promise ? await row : row);
    }
    const registered = await this.#register();
    const { name } = this.#definition;
    return sending(name, rows.length, undefined, (trace) =>
      this.#addAll(registered, rows, {
        add: (part) => this.#store.add(registered.queue, part, tx, trace),
        decide: (piece) =>
          piece.some(({ kind }) => isOneEver(kind.unique) || kind.unique?.replace)
            ? this.#enqueueEach(piece, tx, trace)
            : this.#store.addUnique(registered.queue, this.#uniqueBatch(piece, registered), tx, trace),
      }),
    );
  }

  async #addAll(registered: QueueIds, rows: readonly Row[], { add, decide }: Adding): Promise<EnqueuedIds> {
    const ids: string[] = [];
    const duplicates: number[] = [];
    for (let from = 0; from < rows.length; from += AT_ONCE) {
      const piece = rows.slice(from, from + AT_ONCE);
      if (piece.some(isDecided)) {
        const decided = await decide(piece);
        ids.push(...decided.ids);
        duplicates.push(...decided.duplicates.map((index) => from + index));
        continue;
      }
      for (const [shard, part] of this.#byShard(piece, from)) {
        const added = await add(this.#batch(shard, part, registered));
        part.forEach(({ at }, index) => {
          ids[at] = String(added[index]);
        });
      }
    }
    return Object.assign(ids, { duplicates });
  }

  /** Uses the call for one job, which knows all rules. */
  async #enqueueEach(rows: readonly Row[], tx: OpenTransaction | undefined, trace?: string): Promise<DecidedJobs> {
    const requests = rows.map((row) => this.#request(row));
    const answers = await this.#store.enqueueAll(requests, tx, trace);
    const ids = answers.map(({ id }) => id);
    return { ids, duplicates: [...answers.keys()].filter((index) => answers[index]?.duplicate) };
  }

  get queueName(): string {
    return this.#definition.name;
  }

  /** Checks one job of a flow, and registers its queue. @param field  the node: `nodes[3]` */
  async node(job: JobInput, at: number, field: string): Promise<FlowRow> {
    const row = await readJob(this.#definition, job, at, field);
    refuseUnique(row, field, 'a flow');
    await this.#register();
    const { name: queue, shards: declared } = this.#definition;
    return { ...row, queue, shard: this.#shardOf(row), declared };
  }

  /** A checked request to pawl.enqueue(), for a job that is enqueued later. @param field  the option that contains the job */
  async later(job: JobInput, field: string): Promise<object> {
    const row = await readJob(this.#definition, job, 0, field);
    await this.#register();
    return this.#request(row);
  }

  /** Like `many`, into a batch. Each thousand is written as a whole or not at all; with `tx`, all of them. */
  async manyInto(
    batch: string,
    jobs: readonly JobInput[],
    options: { readonly tx?: OpenTransaction | undefined },
  ): Promise<string[]> {
    const { tx } = checkOptions('enqueueMany', options, manyShape);
    const rows: Row[] = [];
    for (let index = 0; index < jobs.length; index += 1) {
      const row = await readJob(this.#definition, jobs[index], index);
      refuseUnique(row, `jobs[${index}]`, 'a batch');
      rows.push(row);
    }
    const registered = await this.#register();
    return this.#addAll(registered, rows, {
      add: (part) => this.#store.addInto(batch, registered.queue, part, tx),
      decide: () => Promise.resolve({ ids: [], duplicates: [] }),
    });
  }

  /** Spreads jobs without a key: one call uses one shard, and the next call the next shard. */
  #byShard(rows: readonly Row[], from: number): Map<number, Row[]> {
    const { shards } = this.#definition;
    if (shards === 1) return new Map([[0, [...rows]]]);
    if (from === 0) this.#turn = (this.#turn + 1) % shards;
    const parts = new Map<number, Row[]>();
    for (const row of rows) {
      const shard = this.#shardOf(row);
      parts.set(shard, [...(parts.get(shard) ?? []), row]);
    }
    return parts;
  }

  /** A group belongs to one shard, like a key. */
  #shardOf({ key, group }: Row): number {
    const { shards } = this.#definition;
    const name = group ?? key;
    return shards === 1 ? 0 : name === null ? this.#turn : shardOf(name, shards);
  }

  /** Jobs of one shard as columns, for one statement. */
  #batch(shard: number, rows: readonly Row[], registered: QueueIds): NewJobs {
    return { shard, declared: this.#definition.shards, ...columnsOf(rows, registered) };
  }

  #uniqueBatch(rows: readonly Row[], registered: QueueIds): UniqueJobs {
    this.#turn = (this.#turn + 1) % this.#definition.shards;
    const kinds = new Set(rows.map((row) => row.kind));
    const rules = Array.from(kinds, ({ name, unique: rule }) =>
      rule === undefined ? [] : [{ ...rule, kind: kindIdOf(name, registered) }],
    );
    return {
      ...columnsOf(rows, registered),
      shards: compact(rows.map((row) => this.#shardOf(row))),
      declared: this.#definition.shards,
      rules: rules.flat(),
    };
  }
}

/** How checked jobs are written: plain ones, and those for which the database decides whether they exist already. */
interface Adding {
  readonly add: (part: NewJobs) => Promise<number[]>;
  readonly decide: (piece: readonly Row[]) => Promise<DecidedJobs>;
}

function columnsOf(rows: readonly Row[], registered: QueueIds): Omit<NewJobs, 'shard'> {
  const kinds = rows.map((row) => kindIdOf(row.kind.name, registered));
  const priorities = rows.map((row) => row.priority);
  return {
    n: rows.length,
    kinds: compact(kinds),
    priorities: compact(priorities),
    payloads: `[${rows.map((row) => row.payload).join()}]`,
    keys: rows.some((row) => row.key !== null) ? rows.map((row) => row.key) : null,
    runAt: rows.some((row) => row.runAt !== null) ? rows.map((row) => row.runAt) : null,
    delays: rows.some((row) => row.delay !== null) ? rows.map((row) => row.delay) : null,
    options: rows.some((row) => row.own !== undefined) ? JSON.stringify(rows.map((row) => row.own ?? null)) : null,
  };
}

/** If all elements are equal, one of them: the database then takes a shorter path. */
export function compact<T>(values: readonly T[]): readonly T[] {
  const [first] = values;
  return first !== undefined && values.every((value) => value === first) ? [first] : values;
}

/** The same function as pawl.queue_shard() in SQL. */
export function shardOf(name: string, shards: number): number {
  return Number.parseInt(createHash('md5').update(name).digest('hex').slice(0, 7), 16) % shards;
}
