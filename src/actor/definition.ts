import type { InferInput, InferOutput, StandardSchemaV1 } from '../base/options/schema.ts';
import type { Backoff, BackoffOption } from '../base/time/backoff.ts';
import type { Duration } from '../base/time/duration.ts';
import type { ActorKind, LooseFields } from './kind.ts';
import type { Machine } from './machine.ts';
import type { Outcome } from './turn/outcome.ts';
import type { Turn } from './turn/turn.ts';

/** The fields of an actor: the output of its schema. Without a schema, any object. */
export type FieldsOf<S> = [S] extends [StandardSchemaV1] ? InferOutput<S> : LooseFields;

/** The fields that `create` takes: the input of the schema. */
export type FieldsIn<S> = [S] extends [StandardSchemaV1] ? InferInput<S> : LooseFields;

/** One state: its body, and the states to which it may lead. */
export interface StateOptions<F, S extends string, To extends string> {
  /** The states to which this one may lead. The compiler and the turn refuse any other target of `a.to()`. */
  readonly to?: readonly To[] | undefined;
  /** After a `stay()`, the next turn begins after this time. Default: `stay()` hibernates. */
  readonly every?: Duration | undefined;
  /** How long one turn may take. After that, `a.signal` aborts, and the turn has failed. Default `'3m'`. */
  readonly timeout?: Duration | undefined;
  /** How many turns in a row may fail here, crashes included, before the actor is moved to `giveUp`. Default: no limit. */
  readonly tries?: number | undefined;
  /**
   * The state to which the actor moves after `tries` failures. This transition needs no other declaration. There, `a.cause` says
   * why.
   */
  readonly giveUp?: To | undefined;
  /** Semaphores that abort `a.signal` of a running turn. Semaphores of `always` do so without this option. */
  readonly interrupt?: readonly NoInfer<S>[] | undefined;
  /** Which ends of children wake the actor here: the end of the `'last'` child (default), or of `'each'` child. */
  readonly children?: 'last' | 'each' | undefined;
  /** How long the actor may be in this state. After that a page is opened; it is resolved when the actor leaves the state. */
  readonly deadline?: Duration | undefined;
  /**
   * `'lease'` (default): the body runs with neither connection nor lock held. `'transaction'`: the row is locked, and `a.tx` is
   * the transaction that commits the outcome. It is for short bodies that only use the database, and takes one connection of the
   * pool.
   */
  readonly hold?: 'lease' | 'transaction' | undefined;
  /** One turn. It must be idempotent, because it runs again after any crash. It returns the next step: `a.to(…)`, `a.stay()`… */
  readonly run: (a: Turn<F, S, NoInfer<To>>) => Outcome<NoInfer<To>> | Promise<Outcome<NoInfer<To>>>;
}

/** A declared state; made by `state()`. */
export interface State<F = LooseFields, S extends string = string, To extends string = string> {
  readonly options: object;
  /** Semaphores that the state's actor must have. */
  readonly semaphores?: readonly string[] | undefined;
  /** Exists only for the types: an actor with these fields or more, and at least these semaphores, may have the state. */
  readonly types?: ((fields: F) => { readonly to: To; readonly semaphore: S }) | undefined;
}

/** `state()` as the callback form of `states` gets it: it knows the fields and semaphores of its actor. */
export type StateMaker<F, S extends string, Needs extends string = S> = <const To extends string = never>(
  options: StateOptions<F, S, To>,
) => State<F, Needs, NoInfer<To>>;

/** The declaration of a type of actor. */
export interface ActorOptions<
  Schema extends StandardSchemaV1 | undefined,
  S extends string,
  States extends Readonly<Record<string, State<never, string, string>>>,
> {
  /** Any Standard Schema (zod, valibot, arktype…); an object. Checked when the actor is created, before and after each turn. */
  readonly fields?: Schema | undefined;
  /** The version of the fields. Raise it with a change that old fields do not fit. 1 to 32767, default 1. */
  readonly version?: number | undefined;
  /** Turns fields of an older version into fields of this version. Required if `version` is above 1. */
  readonly migrate?: ((fields: LooseFields, from: number) => NoInfer<FieldsOf<Schema>> | LooseFields) | undefined;
  /** Names of semaphores. Any program raises them with `incr`; the actor's own turns lower them. */
  readonly semaphores?: readonly S[] | undefined;
  /** The state of a new actor. */
  readonly initial: NoInfer<keyof States & string>;
  /** Semaphores that lead to a state from any other state, before the body of the current state runs. */
  readonly always?: { readonly [K in NoInfer<S>]?: NoInfer<keyof States & string> } | undefined;
  /** Fields by which `list({ type, where })` finds actors: texts, numbers and booleans. Costs a row for each field and actor. */
  readonly index?: readonly (keyof FieldsOf<Schema> & string)[] | undefined;
  /** The wait after a turn that failed. Default exponential: 1 s, doubled each time, at most 10 min, half of it random. */
  readonly backoff?: BackoffOption | undefined;
  /** How long a final actor and all history are kept: a duration, or `'forever'`. Default `'90d'`. */
  readonly history?: Duration | undefined;
  /**
   * How long the fields before each turn are kept, for `fieldHistory()` and the dashboard; at most `history`. Default: they are
   * not kept. Each turn that changes fields then writes one more row, with the old fields.
   */
  readonly fieldHistory?: Duration | undefined;
  /** The states, by name; or a function that makes them with a `state` that knows fields and semaphores. */
  readonly states: ((state: StateMaker<FieldsOf<Schema>, S>) => States) | States;
}

/** A type of actor with any fields and semaphores. */
export type AnyActorDefinition = ActorDefinition<unknown, never, never>;

/** A type of actor, checked and complete. Pass it to `createActors`. */
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
  /** The part of it that the database keeps: for diagrams, and for actors that SQL creates. */
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
  /** Undefined: the number of failed turns has no limit. */
  readonly tries: Tries | undefined;
  /** Semaphores that abort the signal of a turn in this state. */
  readonly interrupts: readonly string[];
  readonly children: 'last' | 'each';
  readonly run: Body;
}

/** How many failed turns a state allows, and the state that follows them. */
export interface Tries {
  readonly most: number;
  readonly giveUp: string;
}

export type Body = (a: Turn<LooseFields, string, string>) => unknown;
