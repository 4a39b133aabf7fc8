import { InvalidInput } from '../base/errors.ts';
import {
  type Check,
  checkOptions,
  custom,
  duration,
  func,
  integer,
  list,
  object,
  oneOf,
  optional,
  record,
  text,
} from '../base/options/options.ts';
import { refusal } from '../base/options/refusal.ts';
import { type InferInput, type InferOutput, type StandardSchemaV1, schemaOption } from '../base/options/schema.ts';
import { BACKOFF, type Backoff, type BackoffOption, backoffShape } from '../base/time/backoff.ts';
import { type Duration, formatDuration } from '../base/time/duration.ts';
import type { ActorKind, LooseFields } from './kind.ts';
import type { Machine } from './machine.ts';
import { unknownName } from './option-checks.ts';
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

/** A declared state; made by {@link state}. */
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

/** Declares a state. The transitions are typed; in the form `states: (state) => ({…})` fields and semaphores are, too. */
export const state: StateMaker<LooseFields, string, never> = (options) => ({ options });

/**
 * `state()` for states that are declared apart from their actor, in a file of their own: it knows the fields and semaphores
 * of what it is given, which is to be spread into `actor()` as well.
 */
export function stateFor<
  const Schema extends StandardSchemaV1 | undefined = undefined,
  const S extends string = never,
>({ semaphores }: Pick<ActorOptions<Schema, S, never>, 'fields' | 'semaphores'>): StateMaker<FieldsOf<Schema>, S> {
  return (options) => ({ options, semaphores });
}

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

/**
 * Declares a kind of actor: a machine whose state is kept in the database.
 * @param name  1 to 100 characters; the same name is the same kind in every process
 * @throws InvalidInput  names the field: an unknown option, a target that is no state, a semaphore that is not declared…
 */
export function actor<
  const Schema extends StandardSchemaV1 | undefined = undefined,
  // Without the default, leaving semaphores out would mean any.
  const S extends string = never,
  States extends Readonly<Record<string, State<FieldsOf<Schema>, S, string>>> = Readonly<
    Record<string, State<FieldsOf<Schema>, S, string>>
  >,
>(name: string, options: ActorOptions<Schema, S, States>): ActorDefinition<FieldsOf<Schema>, S, FieldsIn<Schema>> {
  return define(name, options);
}

const stateName = text({ min: 1, max: 100, pattern: [/^[^$"]+$/, 'a name without $ and "'] });

const stateShape = {
  to: list(stateName, { default: [] }),
  every: optional(duration({ min: '10ms' })),
  timeout: duration({ min: '10ms', max: '24h', default: '3m' }),
  deadline: optional(duration({ min: '10ms' })),
  hold: oneOf(['lease', 'transaction'], { default: 'lease' }),
  tries: optional(integer({ min: 1, max: 1_000_000 })),
  giveUp: optional(stateName),
  interrupt: list(text({ min: 1 }), { default: [] }),
  children: oneOf(['last', 'each'], { default: 'last' }),
  run: func<Body>(),
};

const history: Check<number> = custom(
  "a duration such as '90d', or 'forever'",
  (value, place) => (value === 'forever' ? Infinity : duration({ min: '1s' }).given(value, place)),
  { default: '90d' },
);

/** Made by {@link state}, or as its options alone. */
const stateOption: Check<Pick<State, 'semaphores'> & { readonly options: unknown }> = custom(
  'made by state()',
  (value, place) => {
    if (typeof value !== 'object' || value === null) throw refusal(place, value, 'made by state()');
    return 'options' in value ? value : { options: value };
  },
);

const shape = {
  fields: schemaOption(),
  version: integer({ min: 1, max: 32_767, default: 1 }),
  migrate: optional(func<(fields: LooseFields, from: number) => unknown>()),
  semaphores: list(text({ min: 1, max: 100, pattern: [/^[^$]+$/, 'a name without $'] }), { default: [] }),
  initial: stateName,
  always: record(stateName, { default: {} }),
  index: list(text({ min: 1, max: 100 }), { default: [] }),
  backoff: backoffShape({ ...BACKOFF, max: 600_000 }),
  history,
  fieldHistory: optional(duration({ min: '1s' })),
  states: custom('an object of states, or a function that gives one', (value) => value),
};

function define<F, S extends string, In>(name: string, options: unknown): ActorDefinition<F, S, In> {
  const what = 'actor';
  checkOptions(what, { name }, { name: text({ min: 1, maxBytes: 100 }) });
  const given = checkOptions(what, options, shape);
  const made: unknown = typeof given.states === 'function' ? given.states(state) : given.states;
  const raw = checkOptions(what, { states: made }, { states: record(stateOption) }).states;
  const names = Object.keys(raw);
  const states = new Map<string, StateDefinition>();
  for (const [stateKey, { options: stateOptions, semaphores = [] }] of Object.entries(raw)) {
    for (const semaphore of semaphores) {
      if (!given.semaphores.includes(semaphore)) {
        throw unknownName('semaphore', semaphore, given.semaphores, `states.${stateKey}`);
      }
    }
    const read = object(stateShape).given(stateOptions, { field: stateKey, what: `${what} "${name}"` });
    stateName.given(stateKey, { field: `states.${stateKey}`, what });
    for (const target of read.to) requireState(target, names, `states.${stateKey}.to`);
    if (read.giveUp !== undefined) requireState(read.giveUp, names, `states.${stateKey}.giveUp`);
    for (const semaphore of read.interrupt) {
      if (!given.semaphores.includes(semaphore)) {
        throw unknownName('semaphore', semaphore, given.semaphores, `states.${stateKey}.interrupt`);
      }
    }
    const forced = Object.entries(given.always).filter(([, target]) => target !== stateKey);
    states.set(
      stateKey,
      Object.freeze({
        name: stateKey,
        to: read.giveUp === undefined ? read.to : [...new Set([...read.to, read.giveUp])],
        tries: triesOf(stateKey, read),
        interrupts: Object.freeze([...new Set([...forced.map(([semaphore]) => semaphore), ...read.interrupt])]),
        children: read.children,
        everyMs: read.every,
        timeoutMs: read.timeout,
        deadlineMs: read.deadline,
        hold: read.hold,
        run: read.run,
      }),
    );
  }
  requireState(given.initial, names, 'initial');
  for (const [semaphore, target] of Object.entries(given.always)) {
    requireState(target, names, `always.${semaphore}`);
    if (!given.semaphores.includes(semaphore)) {
      throw unknownName('semaphore', semaphore, given.semaphores, `always.${semaphore}`);
    }
  }
  if (given.version > 1 && given.migrate === undefined) {
    throw new InvalidInput(
      `actor "${name}" has fields of version ${given.version}, so it needs migrate: (fields, from) => fields`,
      { field: 'migrate' },
    );
  }
  if (given.fieldHistory !== undefined && given.fieldHistory > given.history) {
    throw new InvalidInput(
      `actor "${name}" keeps its fields for ${formatDuration(given.fieldHistory)}, but its history for ${formatDuration(given.history)} only: fieldHistory is at most history`,
      { field: 'fieldHistory' },
    );
  }
  const definition = {
    name,
    schema: given.fields,
    version: given.version,
    migrate: given.migrate,
    semaphores: Object.freeze([...new Set(given.semaphores)]),
    initial: given.initial,
    always: new Map(Object.entries(given.always)),
    indexes: Object.freeze([...new Set(given.index)].sort()),
    backoff: given.backoff,
    historyMs: given.history,
    fieldHistoryMs: given.fieldHistory,
    states,
  };
  return Object.freeze({ ...definition, machine: machineOf(definition) });
}

/** @throws InvalidInput  one of the two without the other */
function triesOf(
  stateKey: string,
  { tries, giveUp }: { readonly tries: number | undefined; readonly giveUp: string | undefined },
): Tries | undefined {
  if (tries !== undefined && giveUp !== undefined) return { most: tries, giveUp };
  if (tries === undefined && giveUp === undefined) return undefined;
  const [there, missing] = tries === undefined ? ['giveUp', 'tries'] : ['tries', 'giveUp'];
  throw new InvalidInput(
    `state "${stateKey}" has ${there} without ${missing}: write tries: 5, giveUp: 'state', so that five failures in a row lead there`,
    { field: `states.${stateKey}.${missing}` },
  );
}

function machineOf({ initial, always, states }: Pick<ActorDefinition, 'initial' | 'always' | 'states'>): Machine {
  return {
    initial,
    always: Object.fromEntries(always),
    states: Object.fromEntries(
      [...states.values()].map(({ name, to, everyMs, timeoutMs, deadlineMs, hold, tries, children }) => [
        name,
        {
          to,
          everyMs,
          timeoutMs,
          deadlineMs,
          hold: hold === 'lease' ? undefined : hold,
          tries: tries?.most,
          giveUp: tries?.giveUp,
          children: children === 'last' ? undefined : children,
        },
      ]),
    ),
  };
}

function requireState(name: string, states: readonly string[], field: string): void {
  if (!states.includes(name)) throw unknownName('state', name, states, field);
}
