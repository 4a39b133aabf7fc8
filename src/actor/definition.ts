import type { InferInput, InferOutput, StandardSchemaV1 } from '../base/options/schema.ts';
import type { Backoff, BackoffOption } from '../base/time/backoff.ts';
import type { Duration } from '../base/time/duration.ts';
import type { ActorKind, LooseFields } from './kind.ts';
import type { Machine } from './machine.ts';
import type { Outcome } from './turn/outcome.ts';
import type { Turn } from './turn/turn.ts';

/** The fields of an actor: as its schema makes them. Without a schema, anything. */
export type FieldsOf<S> = [S] extends [StandardSchemaV1] ? InferOutput<S> : LooseFields;

/** What `create` takes for the fields. */
export type FieldsIn<S> = [S] extends [StandardSchemaV1] ? InferInput<S> : LooseFields;

/** One state: what to do in it, and where it may lead. */
export interface StateOptions<F, S extends string, To extends string> {
  /** The states this one may lead to. `a.to()` takes no other: the compiler refuses it, and so does the turn. */
  readonly to?: readonly To[] | undefined;
  /** Again and again while the actor stays: how long after a `stay()`. Without it, `stay()` hibernates. */
  readonly every?: Duration | undefined;
  /** How long one turn may take; then `a.signal` aborts, and the turn has failed. Default `'3m'`. */
  readonly timeout?: Duration | undefined;
  /** Turns that fail in a row, crashes included, before the actor is given up here and moved to `giveUp`. Default: tried for ever. */
  readonly tries?: number | undefined;
  /** Where the actor goes after so many `tries`, as a transition that needs no other declaration. `a.cause` there says why. */
  readonly giveUp?: To | undefined;
  /** Semaphores that abort `a.signal` of a running turn; those of `always` do so by themselves. */
  readonly interrupt?: readonly NoInfer<S>[] | undefined;
  /** Which ends of children wake the actor here: of the `'last'` one (default), or of `'each'`. */
  readonly children?: 'last' | 'each' | undefined;
  /** How long the actor may be in this state; then a page is opened, and resolved when it leaves. */
  readonly deadline?: Duration | undefined;
  /**
   * `'lease'` (default): the body runs with neither connection nor lock held. `'transaction'`: the row is locked, and `a.tx`
   * is the transaction that the outcome commits; for short bodies that only use the database. Takes one connection of the pool.
   */
  readonly hold?: 'lease' | 'transaction' | undefined;
  /** One turn. Must be idempotent: it is run again after any crash. Returns what comes next: `a.to(…)`, `a.stay()`… */
  readonly run: (a: Turn<F, S, NoInfer<To>>) => Outcome<NoInfer<To>> | Promise<Outcome<NoInfer<To>>>;
}

/** A declared state; made by `state()`. */
export interface State<F = LooseFields, S extends string = string, To extends string = string> {
  readonly options: object;
  /** Semaphores that its actor has to have. */
  readonly semaphores?: readonly string[] | undefined;
  /** Carries the types, never there: an actor with these fields or more, and at least these semaphores, may have it. */
  readonly types?: ((fields: F) => { readonly to: To; readonly semaphore: S }) | undefined;
}

/** `state()` as the callback form of `states` gets it: it knows the fields and semaphores of its actor. */
export type StateMaker<F, S extends string, Needs extends string = S> = <const To extends string = never>(
  options: StateOptions<F, S, To>,
) => State<F, Needs, NoInfer<To>>;

/** A kind of actor as its user declares it. */
export interface ActorOptions<
  Schema extends StandardSchemaV1 | undefined,
  S extends string,
  States extends Readonly<Record<string, State<never, string, string>>>,
> {
  /** Any Standard Schema (zod, valibot, arktype…); an object. Checked when the actor is created, before and after each turn. */
  readonly fields?: Schema | undefined;
  /** Version of the fields; raise it with a change that old fields do not fit. 1 to 32767, default 1. */
  readonly version?: number | undefined;
  /** Makes fields of an older version into those of this one. Required once `version` is above 1. */
  readonly migrate?: ((fields: LooseFields, from: number) => NoInfer<FieldsOf<Schema>> | LooseFields) | undefined;
  /** Names of semaphores: raised by anybody with `incr`, lowered by the actor's own turns. */
  readonly semaphores?: readonly S[] | undefined;
  /** The state of a new actor. */
  readonly initial: NoInfer<keyof States & string>;
  /** From any state but the target itself: a semaphore that leads there, before the body of the state is run. */
  readonly always?: { readonly [K in NoInfer<S>]?: NoInfer<keyof States & string> } | undefined;
  /** Fields by which `list({ type, where })` finds actors: texts, numbers and truth values. Costs a row for each field and actor. */
  readonly index?: readonly (keyof FieldsOf<Schema> & string)[] | undefined;
  /** The wait after a turn that failed. Default exponential: 1 s, doubled each time, at most 10 min, half of it random. */
  readonly backoff?: BackoffOption | undefined;
  /** How long a final actor and all history are kept: a duration, or `'forever'`. Default `'90d'`. */
  readonly history?: Duration | undefined;
  /**
   * How long the fields before each turn are kept, for `fieldHistory()` and the dashboard; at most `history`. Default: not at all. It
   * costs one row with the fields as they were, written with each turn that changes them.
   */
  readonly fieldHistory?: Duration | undefined;
  /** The states, by name; or a function that makes them with a `state` that knows fields and semaphores. */
  readonly states: ((state: StateMaker<FieldsOf<Schema>, S>) => States) | States;
}

/** Any kind of actor, whatever its fields and semaphores. */
export type AnyActorDefinition = ActorDefinition<unknown, never, never>;

/** A kind of actor, checked and complete. Give it to `createActors`. */
export interface ActorDefinition<F = LooseFields, S extends string = string, In = F> extends ActorKind<F, S, In> {
  readonly schema: StandardSchemaV1 | undefined;
  readonly version: number;
  readonly migrate: ((fields: LooseFields, from: number) => unknown) | undefined;
  readonly initial: string;
  readonly always: ReadonlyMap<string, string>;
  /** Fields by which its actors can be listed. */
  readonly indexes: readonly string[];
  readonly backoff: Backoff;
  readonly historyMs: number;
  /** Undefined: older fields are not kept. */
  readonly fieldHistoryMs: number | undefined;
  readonly states: ReadonlyMap<string, StateDefinition>;
  /** What the database keeps of it: for diagrams, and for actors that are created by SQL. */
  readonly machine: Machine;
}

/** A state, checked and complete. */
export interface StateDefinition {
  readonly name: string;
  readonly to: readonly string[];
  readonly everyMs: number | undefined;
  readonly timeoutMs: number;
  readonly deadlineMs: number | undefined;
  readonly hold: 'lease' | 'transaction';
  /** Undefined: failed turns are tried for ever. */
  readonly tries: Tries | undefined;
  /** Semaphores that abort the signal of a turn in this state. */
  readonly interrupts: readonly string[];
  readonly children: 'last' | 'each';
  readonly run: Body;
}

/** How often a state is tried, and where it leads after that. */
export interface Tries {
  readonly most: number;
  readonly giveUp: string;
}

export type Body = (a: Turn<LooseFields, string, string>) => unknown;
