import { type InspectOptions, inspect } from 'node:util';
import type { Origin, OwnOptions } from '../../job-options.ts';
import type { ScheduledFor } from '../../operate/schedule.ts';

/** Jobs that one statement claimed together; the id is their fencing token. */
export interface Claim {
  readonly id: number;
  readonly shard: number;
  readonly processId: string;
  /** True: its jobs must start at once, before waiting ones. */
  readonly isAlone: boolean;
  /** How many of its jobs have no outcome in the database yet. */
  left: number;
}

/** The unit of a job, as far as its texts need it. */
interface JobPlace {
  readonly queue: string;
  readonly kind: string;
  readonly key: string | null;
}

/** One job for a handler. */
export class Job<P = unknown> {
  /** The number of this attempt: 1 for the first. */
  readonly attempt: number;
  /** @internal */
  readonly number: number;
  /** @internal */
  readonly claim: Claim;
  readonly #origin: Origin;
  #payload: P;
  #place: JobPlace | undefined;
  /** The time by which the job has to begin, by the monotonic clock. */
  readonly #expiresAt: number | undefined;

  /** @internal */
  constructor(number: number, claim: Claim, attempt: number, origin: Origin, payload: P) {
    this.number = number;
    this.claim = claim;
    this.attempt = attempt;
    this.#origin = origin;
    this.#payload = payload;
    if (typeof origin !== 'number' && origin.expiresIn !== undefined) {
      this.#expiresAt = performance.now() + origin.expiresIn;
    }
  }

  get payload(): P {
    return this.#payload;
  }

  /** Replaces the stored payload by the output of the schema, with its defaults and transformations. @internal */
  accept(payload: P): void {
    this.#payload = payload;
  }

  get id(): string {
    return String(this.number);
  }

  /** The time of the enqueue, by the database's clock. */
  get enqueuedAt(): Date {
    return new Date(typeof this.#origin === 'number' ? this.#origin : this.#origin.enqueuedAt);
  }

  /** The schedule that enqueued the job, and the tick; undefined if no schedule did. */
  get schedule(): ScheduledFor | undefined {
    const schedule = this.own?.schedule;
    return schedule && { name: schedule.name, at: new Date(schedule.at) };
  }

  /** The `meta` of its enqueue; undefined if it had none. */
  get meta(): Readonly<Record<string, unknown>> | undefined {
    return this.own?.meta;
  }

  /** The group whose places it shares; null for none. */
  get group(): string | null {
    return typeof this.#origin === 'number' ? null : (this.#origin.group ?? null);
  }

  /** The tags of the job; a search finds it by them. */
  get tags(): readonly string[] {
    return this.own?.tags ?? [];
  }

  /** The options of this job alone; undefined for nearly all jobs. @internal */
  get own(): OwnOptions | undefined {
    return typeof this.#origin === 'number' ? undefined : this.#origin.options;
  }

  /** Whether it has not begun by its `expiresAt`. @internal */
  get isExpired(): boolean {
    return this.#expiresAt !== undefined && this.attempt === 1 && performance.now() >= this.#expiresAt;
  }

  /** @internal */
  attachTo(unit: JobPlace): void {
    this.#place = unit;
  }

  /** The form for `JSON.stringify`, and so for logs. */
  toJSON(): object {
    const { id, attempt, enqueuedAt, schedule, meta, group, payload } = this;
    const place = this.#place && { queue: this.#place.queue, kind: this.#place.kind, key: this.#place.key };
    return {
      id,
      ...place,
      attempt,
      enqueuedAt,
      ...(schedule && { schedule }),
      ...(meta && { meta }),
      ...(group !== null && { group }),
      payload,
    };
  }
}

/** Sets the output of `console.log`: some fields for people, under the name of the class. */
export function showAs<T>(kind: { readonly name: string; readonly prototype: T }, fields: (shown: T) => object): void {
  const value = function (this: T, depth: number, options: InspectOptions): string {
    return depth < 0 ? `[${kind.name}]` : `${kind.name} ${inspect(fields(this), { ...options, depth })}`;
  };
  Object.defineProperty(kind.prototype as object, inspect.custom, { value });
}

showAs(Job, (job) => job.toJSON());
