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
import { type StandardSchemaV1, schemaOption } from '../base/options/schema.ts';
import { BACKOFF, backoffShape } from '../base/time/backoff.ts';
import { formatDuration } from '../base/time/duration.ts';
import type {
  ActorDefinition,
  ActorOptions,
  Body,
  FieldsIn,
  FieldsOf,
  State,
  StateDefinition,
  StateMaker,
  Tries,
} from './definition.ts';
import type { LooseFields } from './kind.ts';
import type { Machine } from './machine.ts';
import { unknownName } from './option-checks.ts';

/** Declares a state. The transitions are typed. In the form `states: (state) => ({…})`, fields and semaphores are typed, too. */
export const state: StateMaker<LooseFields, string, never> = (options) => ({ options });

/**
 * `state()` for states that are declared apart from their actor, in a file of their own: it knows the fields and semaphores of
 * its argument. Spread the same argument into `actor()`.
 */
export function stateFor<
  const Schema extends StandardSchemaV1 | undefined = undefined,
  const S extends string = never,
>({ semaphores }: Pick<ActorOptions<Schema, S, never>, 'fields' | 'semaphores'>): StateMaker<FieldsOf<Schema>, S> {
  return (options) => ({ options, semaphores });
}

/**
 * Declares a type of actor: a machine whose state is kept in the database.
 * @param name  1 to 100 characters; the same name is the same type in every process
 * @throws InvalidInput  names the field: an unknown option, a target that is no state, a semaphore that is not declared…
 */
export function actor<
  const Schema extends StandardSchemaV1 | undefined = undefined,
  // Without this default, a declaration without semaphores would accept any.
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

/** Made by {@link state}, or only its options. */
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
  checkOptions('actor', { name }, { name: text({ min: 1, maxBytes: 100 }) });
  const given = checkOptions('actor', options, shape);
  const made: unknown = typeof given.states === 'function' ? given.states(state) : given.states;
  const raw = checkOptions('actor', { states: made }, { states: record(stateOption) }).states;
  const scope = { type: name, states: Object.keys(raw), semaphores: given.semaphores, always: given.always };
  const states = new Map(Object.entries(raw).map(([key, one]) => [key, defineState(key, one, scope)]));
  requireState(given.initial, scope.states, 'initial');
  for (const [semaphore, target] of Object.entries(given.always)) {
    requireState(target, scope.states, `always.${semaphore}`);
    requireDeclared(semaphore, given.semaphores, `always.${semaphore}`);
  }
  refuseContradictions(name, given);
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

/** The names that a state may use. */
interface Scope {
  readonly type: string;
  readonly states: readonly string[];
  readonly semaphores: readonly string[];
  /** The states to which semaphores lead from any state. */
  readonly always: Readonly<Record<string, string>>;
}

function defineState(
  key: string,
  { options, semaphores = [] }: { readonly options: unknown; readonly semaphores?: readonly string[] | undefined },
  scope: Scope,
): StateDefinition {
  const field = `states.${key}`;
  for (const semaphore of semaphores) requireDeclared(semaphore, scope.semaphores, field);
  const read = object(stateShape).given(options, { field: key, what: `actor "${scope.type}"` });
  stateName.given(key, { field, what: 'actor' });
  for (const target of read.to) requireState(target, scope.states, `${field}.to`);
  if (read.giveUp !== undefined) requireState(read.giveUp, scope.states, `${field}.giveUp`);
  for (const semaphore of read.interrupt) requireDeclared(semaphore, scope.semaphores, `${field}.interrupt`);
  const forced = Object.entries(scope.always).filter(([, target]) => target !== key);
  return Object.freeze({
    name: key,
    to: read.giveUp === undefined ? read.to : [...new Set([...read.to, read.giveUp])],
    tries: triesOf(key, read),
    interrupts: Object.freeze([...new Set([...forced.map(([semaphore]) => semaphore), ...read.interrupt])]),
    children: read.children,
    everyMs: read.every,
    timeoutMs: read.timeout,
    deadlineMs: read.deadline,
    hold: read.hold,
    run: read.run,
  });
}

/** @throws InvalidInput  an option needs another one, or is larger than it */
function refuseContradictions(
  name: string,
  given: {
    readonly version: number;
    readonly migrate: unknown;
    readonly fieldHistory: number | undefined;
    readonly history: number;
  },
): void {
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
}

/** @throws InvalidInput  one of `tries` and `giveUp` without the other */
function triesOf(
  stateKey: string,
  { tries, giveUp }: { readonly tries: number | undefined; readonly giveUp: string | undefined },
): Tries | undefined {
  if (tries !== undefined && giveUp !== undefined) return { most: tries, giveUp };
  if (tries === undefined && giveUp === undefined) return undefined;
  const [there, missing] = tries === undefined ? ['giveUp', 'tries'] : ['tries', 'giveUp'];
  throw new InvalidInput(
    `state "${stateKey}" has ${there} without ${missing}: write tries: 5, giveUp: 'state'; then five failures in a row lead to that state`,
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

function requireDeclared(semaphore: string, declared: readonly string[], field: string): void {
  if (!declared.includes(semaphore)) throw unknownName('semaphore', semaphore, declared, field);
}
