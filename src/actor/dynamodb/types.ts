import { NotFound } from '../../base/errors.ts';
import { now } from '../../base/time/clock.ts';
import { type Change, creation, fieldsOf } from '../../engine/dynamodb/index.ts';
import type { ActorDefinition } from '../definition.ts';
import type { Machine } from '../machine.ts';
import type { ActorRows } from './database.ts';
import { ACTORS, TYPES, typeOf } from './rows.ts';

/** A type, as the table stores it. */
export interface TypeRow {
  readonly id: number;
  readonly name: string;
  readonly shards: number;
  readonly semaphores: readonly string[];
  readonly always: readonly string[];
  readonly machine: Machine;
  readonly version: number;
  readonly historyMs: number | null;
  /** The backoff: min ms, max ms, factor, jitter. With factor 0, each wait is longer by min. */
  readonly backoff: readonly number[];
  /** When the type was paused; 0: it is not paused. */
  readonly pausedAt: number;
  /** The paused states, each with the time of its pause. */
  readonly pausedStates: Readonly<Record<string, number>>;
}

/** How long types are used after they were read. So a pause reaches all workers within this time. */
const FRESH_MS = 2000;
/** The declaration of a type, which its row has as a text. */
type TypeDeclaration = Omit<TypeRow, 'id' | 'name' | 'pausedAt' | 'pausedStates' | 'shards'>;

/** The types of actors, as the table stores them. */
export class Types {
  readonly #rows: ActorRows;
  #byId: ReadonlyMap<number, TypeRow> = new Map();
  #readAt = -Infinity;

  constructor(rows: ActorRows) {
    this.#rows = rows;
  }

  /** @throws NotFound  no program has declared it */
  async named(name: string): Promise<TypeRow> {
    const find = (): TypeRow | undefined => [...this.#byId.values()].find((type) => type.name === name);
    const found = find() ?? (await this.#read().then(find));
    if (found !== undefined) return found;
    throw new NotFound(`there is no actor type "${name}"; a program makes its types known when it first uses them`);
  }

  async withId(id: number): Promise<TypeRow> {
    if (!this.#byId.has(id)) await this.#read();
    const found = this.#byId.get(id);
    if (found === undefined) throw new NotFound(`there is no actor type ${id}`);
    return found;
  }

  /** Whether a state is paused now. Reads the row of the type. */
  async isPausedNow({ name }: TypeRow, state: string): Promise<boolean> {
    return pausedStates(fieldsOf(await this.#rows.get(typeOf(name)))['s1'])[state] !== undefined;
  }

  /** All types, read in the last two seconds. */
  async fresh(): Promise<ReadonlyMap<number, TypeRow>> {
    if (now() - this.#readAt > FRESH_MS) await this.#read();
    return this.#byId;
  }

  /** The same types, read again if one of these ids is not among them. */
  async freshWith(ids: Iterable<number>): Promise<ReadonlyMap<number, TypeRow>> {
    const types = await this.fresh();
    if ([...ids].some((id) => !types.has(id))) await this.#read();
    return this.#byId;
  }

  async #read(): Promise<void> {
    const begun = now();
    const items = await this.#rows.all(ACTORS, TYPES.first, TYPES.last);
    const types = items.map((item) => readType(fieldsOf(item)));
    this.#byId = new Map(types.map((type) => [type.id, type]));
    this.#readAt = begun;
  }

  /** Writes the declarations that the table does not have yet. @returns the ids by name */
  async register(definitions: readonly ActorDefinition[], shards: number): Promise<ReadonlyMap<string, number>> {
    await this.#read();
    for (const definition of definitions) await this.#declare(definition, shards);
    await this.#read();
    return new Map([...this.#byId.values()].map(({ name, id }) => [name, id]));
  }

  async #declare(definition: ActorDefinition, shards: number): Promise<void> {
    const { name } = definition;
    const text = JSON.stringify(declarationOf(definition));
    const known = [...this.#byId.values()].find((type) => type.name === name);
    if (known === undefined) {
      const id = await this.#rows.count({ pk: ACTORS, sk: 'types' });
      // If several programs declare the type at the same time, one makes the row.
      const made = creation({ y: id, n: name, j: shards, d: text });
      await this.#rows.engine.update(typeOf(name), made, 'NONE', this.#rows.limits);
    }
    await this.#rows.decide(typeOf(name), ({ d }) =>
      d === text ? undefined : { expect: { d: d ?? null }, set: { d: text } },
    );
  }

  /** Pauses a type or a state, or ends the pause. @param state  undefined: the whole type @returns whether that changed anything */
  async pause(name: string, isPaused: boolean, state: string | undefined): Promise<boolean> {
    await this.named(name);
    const time = await this.#rows.engine.serviceTime(this.#rows.limits);
    const after = await this.#rows.decide(typeOf(name), ({ p, s1 }) => {
      if (state !== undefined) return stateChange(s1, state, isPaused, time);
      return (p !== undefined) === isPaused
        ? undefined
        : { expect: { p: p ?? null }, set: { p: isPaused ? time : null } };
    });
    this.#readAt = -Infinity;
    return after !== undefined;
  }
}

function declarationOf({ semaphores, always, machine, version, historyMs, backoff }: ActorDefinition): TypeDeclaration {
  const { kind, min, max, factor, jitter } = backoff;
  return {
    semaphores,
    always: [...always.keys()],
    machine,
    version,
    historyMs: Number.isFinite(historyMs) ? historyMs : null,
    backoff: [min, max, kind === 'exponential' ? factor : kind === 'linear' ? 0 : 1, jitter],
  };
}

function pausedStates(text: string | number | undefined): Readonly<Record<string, number>> {
  return JSON.parse(String(text ?? '{}'));
}

/** @param known  the paused states, as the row stores them */
function stateChange(
  known: string | number | undefined,
  state: string,
  isPaused: boolean,
  time: number,
): Change | undefined {
  const { [state]: since, ...others } = pausedStates(known);
  if ((since !== undefined) === isPaused) return undefined;
  const after = isPaused ? { ...others, [state]: time } : others;
  const text = Object.keys(after).length === 0 ? null : JSON.stringify(after);
  return { expect: { s1: known ?? null }, set: { s1: text } };
}

function readType(fields: Readonly<Record<string, string | number>>): TypeRow {
  const declared: TypeDeclaration = JSON.parse(String(fields['d']));
  return {
    ...declared,
    id: Number(fields['y']),
    name: String(fields['n']),
    shards: Number(fields['j'] ?? 1),
    pausedAt: Number(fields['p'] ?? 0),
    pausedStates: pausedStates(fields['s1']),
  };
}

/** The wait before the next try in ms, after this many failed attempts. */
export function backoffOf({ backoff }: TypeRow, attempt: number): number {
  const [min = 0, max = 0, factor = 1, jitter = 0] = backoff;
  const wait = factor === 0 ? min * attempt : min * factor ** Math.min(attempt - 1, 100);
  return Math.min(max, wait) * (1 - jitter * Math.random());
}
