/** Schedules. Each is a row next to the declaration. A tick is one transaction: the job, and the row with the next tick. */
import { randomInt } from 'node:crypto';
import {
  type Change,
  Expression,
  type Fields,
  fieldsOf,
  type Key,
  type PartialWrite,
  written,
} from '../../engine/dynamodb/index.ts';
import { kindIdOf } from '../declare/kind-id.ts';
import type { Definition } from '../definition.ts';
import { type EnqueueResult, shardOf } from '../enqueue.ts';
import type { Due, DueSchedule, ScheduleRecord, Tick } from '../operate/schedule.ts';
import type { TickRows } from '../operate/scheduler.ts';
import type { NewSchedule, NewSchedules, ScheduleRows } from '../operate/set-schedule.ts';
import type { ScheduleRun } from '../postgres/operate/schedules.ts';
import type { NewJobs, QueueIds } from '../store.ts';
import { type QueueRows, unlessMissing } from './database.ts';
import { addWith } from './enqueue/producing.ts';
import { findUnique, placeOfUnique, type UniqueFound } from './enqueue/unique.ts';
import { statusOfJob } from './operate/standing.ts';
import { declarationOf, queueKey, SCHEDULES, scheduleOf } from './rows.ts';

/** How many jobs a schedule remembers; on Postgres a hundred. So with a small payload its row stays below a kilobyte. */
const RUNS = 20;
const MOST_SCHEDULES = 1000;

interface ScheduleRow extends Omit<NewSchedule, 'next'> {
  readonly next: number | null;
  readonly lastAt: number | null;
  readonly pausedAt: number | null;
  readonly ofSet: boolean;
  /** The tick and the id of each job, newest first. */
  readonly runs: readonly (readonly [at: number, job: number])[];
  readonly fields: Fields;
}

const F = { declared: 'y', next: 'n', version: 'v', ofSet: 'o', last: 'l', paused: 'z', runs: 'r' } as const;
/** A field of the declaration of the queue: the version of the last set of schedules. */
const SET_VERSION = 'w';

/** The schedules of one queue. */
export class DynamoSchedules implements ScheduleRows, TickRows {
  readonly #rows: QueueRows;
  readonly #definition: Definition;
  readonly #ids: () => Promise<QueueIds>;

  constructor(rows: QueueRows, definition: Definition, ids: () => Promise<QueueIds>) {
    this.#rows = rows;
    this.#definition = definition;
    this.#ids = ids;
  }

  /** The time by the clock of the service. */
  async now(): Promise<number> {
    return Math.floor(await this.#rows.engine.serviceTime(this.#rows.limits));
  }

  /** A schedule with the same pattern and zone keeps its next tick, so every process may declare it at its start. */
  async set(schedule: NewSchedule, ofSet = false): Promise<void> {
    const { next, ...declared } = schedule;
    await this.#rows.decide(scheduleOf(this.#rows.queue, schedule.name), (fields) => {
      const known = fields[F.declared] === undefined ? undefined : read(fields);
      const isSame = known?.cron === declared.cron && known.timezone === declared.timezone;
      const text = JSON.stringify(declared);
      if (isSame && fields[F.declared] === text && known.ofSet === ofSet) return undefined;
      const nextAt = isSame ? known.next : next;
      return changed(fields, { [F.declared]: text, [F.next]: nextAt, [F.ofSet]: ofSet ? 1 : null });
    });
  }

  /** Declares one schedule after another, so others may see a part of the set. A set of a lower version than the last one changes nothing. */
  async setAll({ version, schedules }: NewSchedules): Promise<void> {
    let isOld = false;
    await this.#rows.decide(declarationOf(this.#rows.queue), (fields) => {
      const known = fields[SET_VERSION];
      isOld = known !== undefined && version !== null && Number(known) > version;
      if (isOld || version === null || known === version) return undefined;
      return { expect: { [SET_VERSION]: known ?? null }, set: { [SET_VERSION]: version } };
    });
    if (isOld) return;
    const names = new Set(schedules.map(({ name }) => name));
    for (const { name, ofSet } of await this.#all()) if (ofSet && !names.has(name)) await this.remove(name);
    for (const schedule of schedules) await this.set(schedule, true);
  }

  /** @returns whether the schedule existed */
  async remove(name: string): Promise<boolean> {
    const there = new Expression().when('attribute_exists(pk)').write();
    const { isDone, isRepeated } = await this.#rows.engine.remove(this.#key(name), there, this.#rows.limits);
    return isDone || isRepeated;
  }

  async list(): Promise<ScheduleRecord[]> {
    return (await this.#all()).map(toRecord);
  }

  /** The jobs that the schedule remembers, newest first. */
  async runs(name: string, limit: number): Promise<ScheduleRun[]> {
    const { runs = [] } = (await this.#get(name)) ?? {};
    return Promise.all(
      runs.slice(0, limit).map(async ([at, job]) => {
        const status = await statusOfJob(this.#rows, this.#definition, job).catch(unlessMissing);
        return { at: new Date(at), job: String(job), status: status ?? null };
      }),
    );
  }

  /** Stops the ticks of a schedule. @returns whether the schedule exists */
  async pause(name: string): Promise<boolean> {
    const at = await this.now();
    return this.#decide(name, (stored) => (stored.pausedAt === null ? { [F.paused]: at } : undefined));
  }

  /** Lets the schedule go on with its first tick after now. @returns whether the schedule exists */
  resume(
    name: string,
    nextTick: (schedule: Pick<ScheduleRow, 'cron' | 'timezone'>) => number | null,
  ): Promise<boolean> {
    return this.#decide(name, (stored) =>
      stored.pausedAt === null ? undefined : { [F.paused]: null, [F.next]: nextTick(stored) },
    );
  }

  /** Enqueues the job of a schedule now; its ticks do not change. @returns undefined if there is no such schedule */
  async run(name: string): Promise<EnqueueResult | undefined> {
    for (;;) {
      const stored = await this.#get(name);
      if (stored === undefined) return undefined;
      const at = await this.now();
      const unique = await this.#findUnique(stored);
      if (unique?.there !== undefined) {
        return { id: String(unique.there.id), status: unique.there.status, duplicate: true };
      }
      const id = await this.#enqueue(stored, unique, at, {}, 0);
      if (id !== undefined) return { id: String(id), status: 'new', duplicate: false };
    }
  }

  /** One request, whatever the number of schedules. */
  async due(): Promise<Due> {
    const now = await this.now();
    const open = (await this.#all()).flatMap(({ pausedAt, next, ...one }) =>
      pausedAt !== null || next === null ? [] : [{ ...one, next }],
    );
    const due = open
      .filter(({ next }) => next <= now)
      .map((one): DueSchedule => ({ ...one, missedFor: one.missedFor ?? null, queue: 0 }));
    const wait = Math.min(...open.map(({ next }) => Math.max(0, next - now)));
    return { now, due, wait: wait === Infinity ? null : wait };
  }

  /** Makes a transaction for each tick. If several processes try the same tick, one of them succeeds. */
  async tick({ name, cron, seen, ticks, next }: Tick): Promise<number | null> {
    let jobs = 0;
    let expected = seen;
    for (const [index, at] of ticks.entries()) {
      const following = ticks[index + 1] ?? next;
      const added = await this.#tickOnce({ name, cron, expected, at, following });
      if (added === undefined) return index === 0 ? null : jobs;
      jobs += added;
      expected = following ?? expected;
    }
    if (ticks.length > 0) return jobs;
    const isMoved = await this.#decide(name, (stored) =>
      stored.next === seen && stored.cron === cron ? { [F.next]: next } : undefined,
    );
    return isMoved ? 0 : null;
  }

  /** @returns how many jobs it has enqueued; undefined if the schedule is not at this tick any more */
  async #tickOnce(tick: {
    readonly name: string;
    readonly cron: string;
    readonly expected: number;
    readonly at: number;
    readonly following: number | null;
  }): Promise<0 | 1 | undefined> {
    for (;;) {
      const stored = await this.#get(tick.name);
      if (stored?.next !== tick.expected || stored.cron !== tick.cron || stored.pausedAt !== null) return undefined;
      const isSkipped = stored.overlap === 'skip' && (await this.#isOutstanding(stored));
      const unique = isSkipped ? undefined : await this.#findUnique(stored);
      if (!isSkipped && unique?.there === undefined) {
        const delay = stored.jitter === undefined ? 0 : randomInt(stored.jitter + 1);
        const set = { [F.next]: tick.following, [F.last]: tick.at };
        const id = await this.#enqueue(stored, unique, tick.at, set, delay);
        if (id !== undefined) return 1;
        continue;
      }
      const change = changed(stored.fields, { [F.next]: tick.following });
      if ((await this.#rows.change(this.#key(tick.name), change)).isDone) return 0;
    }
  }

  /** Writes the job and the row of its schedule together. @returns undefined if something has changed meanwhile, so read again */
  async #enqueue(
    stored: ScheduleRow,
    unique: UniqueFound | undefined,
    at: number,
    set: Change['set'],
    delayMs: number,
  ): Promise<number | undefined> {
    const { kind, key, priority, payload, name } = stored;
    const { kindId } = await this.#ids();
    const { shards, keyed } = this.#definition;
    const batch: NewJobs = {
      shard: key === undefined ? randomInt(shards) : shardOf(key, shards),
      n: 1,
      kinds: [kindIdOf(kind, { kindId })],
      priorities: [priority],
      payloads: JSON.stringify([payload]),
      keys: key === undefined ? null : [key],
      runAt: null,
      delays: delayMs === 0 ? null : [delayMs],
      options: JSON.stringify([{ schedule: { name, at: new Date(at).toISOString() } }]),
    };
    return addWith(this.#rows, batch, undefined, keyed, (id): PartialWrite[] => {
      const runs = JSON.stringify([[at, id], ...stored.runs].slice(0, RUNS));
      const own = { key: this.#key(name), written: written(changed(stored.fields, { ...set, [F.runs]: runs })) };
      return unique === undefined ? [own] : [own, unique.mark(id)];
    });
  }

  /** @returns undefined if the kind of the schedule is not unique */
  async #findUnique({ kind, key, payload }: ScheduleRow): Promise<UniqueFound | undefined> {
    const rule = this.#definition.kinds.get(kind)?.unique;
    if (rule === undefined) return undefined;
    const place = placeOfUnique(this.#rows.queue, kind, rule, { key, payload });
    return findUnique(this.#rows, this.#definition, place);
  }

  /** Whether one of the jobs that the schedule remembers is outstanding. A job that was removed from the history is over. */
  async #isOutstanding({ runs }: ScheduleRow): Promise<boolean> {
    for (const [, job] of runs) {
      const status = await statusOfJob(this.#rows, this.#definition, job).catch(() => 'complete');
      if (status === 'new' || status === 'in-progress') return true;
    }
    return false;
  }

  async #decide(name: string, set: (stored: ScheduleRow) => Change['set'] | undefined): Promise<boolean> {
    let isThere = false;
    await this.#rows.decide(this.#key(name), (fields) => {
      isThere = fields[F.declared] !== undefined;
      const wanted = isThere ? set(read(fields)) : undefined;
      return wanted === undefined ? undefined : changed(fields, wanted);
    });
    return isThere;
  }

  async #get(name: string): Promise<ScheduleRow | undefined> {
    const fields = fieldsOf(await this.#rows.get(this.#key(name)));
    return fields[F.declared] === undefined ? undefined : read(fields);
  }

  async #all(): Promise<ScheduleRow[]> {
    const { first, last } = SCHEDULES;
    const items = await this.#rows.range(queueKey(this.#rows.queue), first, last, MOST_SCHEDULES);
    return items.map((item) => read(fieldsOf(item)));
  }

  #key(name: string): Key {
    return scheduleOf(this.#rows.queue, name);
  }
}

/** Every change expects the version that was read, and raises it. */
function changed(fields: Fields, set: Change['set']): Change {
  const version = fields[F.version] ?? null;
  return { expect: { [F.version]: version }, set: { ...set, [F.version]: Number(version ?? 0) + 1 } };
}

function read(fields: Fields): ScheduleRow {
  const declared: Omit<NewSchedule, 'next'> = JSON.parse(String(fields[F.declared]));
  const time = (name: string): number | null => (fields[name] === undefined ? null : Number(fields[name]));
  return {
    ...declared,
    next: time(F.next),
    lastAt: time(F.last),
    pausedAt: time(F.paused),
    ofSet: fields[F.ofSet] !== undefined,
    runs: JSON.parse(String(fields[F.runs] ?? '[]')),
    fields,
  };
}

function toRecord(stored: ScheduleRow): ScheduleRecord {
  const { queue, name, cron, timezone, kind, key, priority, payload, missed, overlap, lastAt, pausedAt, next } = stored;
  const date = (at: number | null): Date | null => (at === null ? null : new Date(at));
  return {
    queue,
    name,
    cron,
    timezone,
    kind,
    key: key ?? null,
    group: null,
    priority,
    payload,
    missed,
    overlap,
    missedForMs: stored.missedFor ?? null,
    jitterMs: stored.jitter ?? null,
    nextAt: pausedAt === null ? date(next) : null,
    lastAt: date(lastAt),
    pausedAt: date(pausedAt),
    ofSet: stored.ofSet,
  };
}
