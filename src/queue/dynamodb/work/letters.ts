/**
 * Dead letters: a job with an `onError`, of its own or of its kind, leaves one if it ends in error. One transaction ends the job and adds the letter.
 * So the head of the shard lets go of the job, or the head of its key says that it is over, if and only if the letter exists.
 */
import { fieldsOf, type PartialWrite, written } from '../../../engine/dynamodb/index.ts';
import type { DeadLetter, Definition } from '../../definition.ts';
import type { JobFailure, NewJobs, QueueIds } from '../../store.ts';
import type { QueueRows } from '../database.ts';
import { addWith } from '../enqueue/producing.ts';
import { counting, noneEnded } from '../heads/ended.ts';
import { readHead, settledFrom } from '../heads/head.ts';
import { keyStandingOf, readKeyHead } from '../heads/key-head.ts';
import { keySettled } from '../heads/key-settling.ts';
import { placeOf } from '../heads/place.ts';
import { headOf, type JobRow, pieceOf, readJobRow } from '../rows.ts';
import type { HeldClaim, HeldKey } from './held.ts';

/** The largest payload that a letter includes. */
const MOST_BYTES = 65_536;
const MOST_TRIES = 20;

/** `none`: the job leaves no letter. `stale`: the job is no longer this worker's, and nothing was written. */
export type LetterOutcome = 'none' | 'left' | 'stale';

/** A job that ends in error, and its place in its row. */
interface EndingJob {
  readonly id: number;
  readonly shard: number;
  readonly row: JobRow;
  readonly at: number;
  readonly label: string | undefined;
}

/** @returns undefined if neither the job nor its kind has an `onError` */
export function letterOf(
  { name: queue, kinds }: Definition,
  ids: QueueIds,
  { id, shard, row, at, label }: EndingJob,
  error: string,
  attempts: number,
): NewJobs | undefined {
  const kind = ids.kindName.get(row.kinds[at] ?? -1) ?? '';
  const letterKind = ids.kindId.get(row.options?.[at]?.onError ?? kinds.get(kind)?.onError ?? '');
  if (letterKind === undefined) return undefined;
  const payload = row.payloads[at] ?? null;
  const isPayloadOmitted = Buffer.byteLength(JSON.stringify(payload)) > MOST_BYTES;
  const dead: DeadLetter = {
    job: String(id),
    queue,
    kind,
    key: label ?? null,
    attempts,
    error,
    payload: isPayloadOmitted ? null : payload,
    isPayloadOmitted,
  };
  const keys = label === undefined ? null : [label];
  const rest = { kinds: [letterKind], priorities: [0], keys, runAt: null, delays: null, options: null };
  return { shard, n: 1, payloads: JSON.stringify([dead]), ...rest };
}

export class Letters {
  readonly #rows: QueueRows;
  readonly #definition: Definition;
  readonly #hasAny: boolean;
  /** The kinds, as this process has registered them last. */
  ids: QueueIds | undefined;

  constructor(rows: QueueRows, definition: Definition) {
    this.#rows = rows;
    this.#definition = definition;
    this.#hasAny = [...definition.kinds.values()].some(({ onError }) => onError !== undefined);
  }

  /** Ends a job and adds its letter: a read, a write and a transaction. Sends nothing if neither the job nor any kind has an `onError`. */
  async leave(held: HeldClaim, failure: JobFailure, attempt: number): Promise<LetterOutcome> {
    const { id } = failure;
    if (failure.to !== 'error' || !(this.#hasAny || held.ownLetters.has(id))) return 'none';
    const key = [...held.keys].find(({ jobs }) => jobs.has(id));
    const letter = await this.#letterOf(held, key, failure, attempt);
    if (letter === undefined) return 'none';
    if (key !== undefined) held.ended.error += 1;
    const isLeft = await (key === undefined ? this.#endPlain(held, id, letter) : this.#endOfKey(key, id, letter));
    if (key === undefined) held.plain.delete(id);
    else key.jobs.delete(id);
    return isLeft ? 'left' : 'stale';
  }

  /** @returns undefined if neither the job nor its kind has an `onError` */
  async #letterOf(
    held: HeldClaim,
    key: HeldKey | undefined,
    { id, error = '' }: JobFailure,
    attempts: number,
  ): Promise<NewJobs | undefined> {
    const { piece, index } = placeOf(id);
    const item = await this.#rows.get(pieceOf(key?.pk ?? this.#rows.shard(held.shard), piece));
    if (item === undefined) return undefined;
    const row = readJobRow(item);
    const at = row.indexes.indexOf(index);
    const job = { id, shard: held.shard, row, at, label: key?.key ?? row.keys?.[at] };
    return this.ids === undefined ? undefined : letterOf(this.#definition, this.ids, job, error, attempts);
  }

  async #endPlain(held: HeldClaim, id: number, letter: NewJobs): Promise<boolean> {
    const { piece, index } = placeOf(id);
    const place = headOf(this.#rows.shard(held.shard));
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const { change, left } = settledFrom(held.claim, (spot) => spot.piece === piece && spot.index === index);
      const counted = counting(change, { ...noneEnded(), error: 1 }, this.#rows.engine.now());
      if (await this.#add(letter, { key: place, written: written(counted) })) {
        held.claim = left ?? { ...held.claim, spans: [] };
        return true;
      }
      // Either an earlier settlement was carried out and its answer was lost, or the worker was declared dead.
      const { claims } = readHead(fieldsOf(await this.#rows.get(place)));
      const now = claims.find(({ token }) => token === held.claim.token);
      if (now === undefined) return false;
      const isThere = now.spans.some(
        (span) => span.piece === piece && index >= span.index && index < span.index + span.n,
      );
      held.claim = now;
      if (!isThere) return true;
    }
    throw new Error(`claim ${held.id} changes too often`);
  }

  async #endOfKey(key: HeldKey, id: number, letter: NewJobs): Promise<boolean> {
    const place = headOf(key.pk);
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const settled = keySettled(key.head, key.epoch, [{ id, to: 'over', dueAt: 0 }], false);
      if (settled === undefined) return false;
      if (keyStandingOf(key.head, id) === 'over') return true;
      const isAdded = await this.#add(letter, { key: place, written: written(settled.change) });
      key.head = readKeyHead(fieldsOf(await this.#rows.get(place)));
      if (isAdded) return true;
    }
    throw new Error(`the head of key "${key.key}" changes too often`);
  }

  async #add(letter: NewJobs, ending: PartialWrite): Promise<boolean> {
    const id = await addWith(this.#rows, letter, undefined, this.#definition.keyed, () => [ending]);
    return id !== undefined;
  }
}
