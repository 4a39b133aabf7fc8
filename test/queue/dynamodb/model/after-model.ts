// Explores every order of the requests of those who look whether a job that comes after another one may run, and of people who cancel, change and
// retry both. Every decision is made by the functions of the library. A transaction is one step, which the service carries out once.
import { applied, type Change, type Fields } from '../../../../src/engine/dynamodb/index.ts';
import { endOf, type ParentEnd, verdictOf } from '../../../../src/queue/dynamodb/enqueue/after.ts';
import { readHead } from '../../../../src/queue/dynamodb/heads/head.ts';
import { jobAdded, keyCancelled } from '../../../../src/queue/dynamodb/heads/key-changes.ts';
import { keyStandingOf, readKeyHead } from '../../../../src/queue/dynamodb/heads/key-head.ts';
import { JOBS } from '../../../../src/queue/dynamodb/heads/place.ts';
import { waiting, waitLeft } from '../../../../src/queue/dynamodb/heads/waiting.ts';
import type { Protocol, Step } from '../../../support/history/explore.ts';

export interface AfterModelOptions {
  readonly lookers: number;
  /** The job that waits has a key by which it is ordered. */
  readonly isKeyed?: boolean;
  /** How often the first job fails, and is retried by hand. */
  readonly failures?: number;
  /** What people do with the job that waits. */
  readonly calls: readonly ('cancel' | 'retry' | 'update')[];
  readonly plant?: AfterPlant;
}

/** Bugs to be found. */
export type AfterPlant =
  | 'the row of the wait may have changed'
  | 'the head of the key may have changed'
  | 'one that was cancelled is let go'
  | 'ends of failed jobs are kept'
  | 'those that were cancelled stay counted';

interface Looker {
  readonly at: 'rest' | 'has read the wait' | 'has read the parent' | 'writes';
  /** The row of the wait, as it was read. */
  readonly row: Fields | null;
  readonly end: ParentEnd | null;
  /** It has once found that the first job had failed. */
  readonly known: ParentEnd | null;
  readonly todo: { readonly head: Change; readonly key: Change | null; readonly isEnd: boolean } | null;
}

interface Person {
  readonly at: 'begin' | 'has read the wait' | 'cancels in the key' | 'done';
  readonly row: Fields | null;
}

export interface AfterState {
  readonly parent: 'new' | 'complete' | 'error';
  readonly failures: number;
  /** The row of the wait: `x`, those that were cancelled; `r`, the time that was set by hand. */
  readonly wait: Fields | null;
  readonly head: Fields;
  readonly key: Fields;
  readonly lookers: readonly Looker[];
  readonly people: readonly Person[];
  /** How often the job has ended, without running or after it, and was brought back. */
  readonly ends: number;
  readonly retries: number;
  readonly problem?: string;
}

const PIECE = 2;
const ID = PIECE * JOBS;
const TERMS = { parents: [JOBS], afterError: 'error', afterCancel: 'cancel', runAt: 0 } as const;
const IDLE = { at: 'rest', row: null, end: null, todo: null } as const;

export function afterModel(options: AfterModelOptions): Protocol<AfterState> {
  const { isKeyed = false, lookers, calls, failures = 0 } = options;
  const left = { id: ID, attempt: 0, dueAt: 999, isScheduled: true };
  const key = isKeyed ? jobAdded(readKeyHead({}), left) : undefined;
  return {
    start: {
      parent: 'new',
      failures,
      wait: { n: 1, p: '[64]' },
      head: applied({}, waiting(1)) ?? {},
      key: key === undefined ? {} : (applied({}, key) ?? {}),
      lookers: Array.from({ length: lookers }, () => ({ ...IDLE, known: null })),
      people: calls.map(() => ({ at: 'begin', row: null })),
      ends: 0,
      retries: 0,
    },
    steps: (state) => [
      ...parentSteps(state),
      ...runSteps(state, options),
      ...state.lookers.flatMap((_, index) => lookSteps(state, index, options)),
      ...state.people.flatMap((_, index) => personSteps(state, index, options)),
    ],
    fault: (state) => {
      if (state.ends > state.retries + 1) return 'a job has ended twice';
      return Number(state.head['w'] ?? 0) < 0 ? 'a wait was counted off twice' : state.problem;
    },
    isOver: (state) =>
      state.wait === null &&
      Number(state.head['w'] ?? 0) === 0 &&
      readHead(state.head).back.length === 0 &&
      state.ends === state.retries + 1 &&
      state.people.every(({ at }) => at === 'done') &&
      state.lookers.every(({ at }) => at === 'rest'),
  };
}

function parentSteps(state: AfterState): Step<AfterState>[] {
  const { parent, failures } = state;
  if (parent === 'complete') return [];
  if (parent === 'error') return [{ what: 'the parent is retried by hand', state: { ...state, parent: 'new' } }];
  const fails = { ...state, parent: 'error', failures: failures - 1 } as const;
  return [
    { what: 'the parent is complete', state: { ...state, parent: 'complete' } },
    ...(failures > 0 ? [{ what: 'the parent fails', state: fails }] : []),
  ];
}

/** What was let go runs, and is over. */
function runSteps(state: AfterState, { isKeyed = false }: AfterModelOptions): Step<AfterState>[] {
  const [entry] = readHead(state.head).back;
  if (entry === undefined) return [];
  const { [entry.name]: _, ...head } = state.head;
  if (!isKeyed) return [{ what: 'the job runs', state: { ...state, head, ends: state.ends + 1 } }];
  const key = readKeyHead(state.key);
  const isDue = key.left.some(({ id, dueAt }) => id === ID && dueAt === 0);
  const out = isDue ? keyCancelled(key, ID, key) : undefined;
  const after = out && applied(state.key, out);
  if (after === undefined) return [{ what: 'the poke finds nothing', state: { ...state, head } }];
  return [{ what: 'the job of the key runs', state: { ...state, head, key: after, ends: state.ends + 1 } }];
}

function lookSteps(state: AfterState, index: number, options: AfterModelOptions): Step<AfterState>[] {
  const me = state.lookers[index];
  if (me === undefined) return [];
  const { plant, isKeyed = false } = options;
  const become = (what: string, next: Partial<Looker>, more: Partial<AfterState> = {}): Step<AfterState> => ({
    what: `looker ${index} ${what}`,
    state: { ...state, ...more, lookers: state.lookers.with(index, { ...me, ...next }) },
  });
  switch (me.at) {
    case 'rest':
      return state.wait === null ? [] : [become('reads the wait', { at: 'has read the wait', row: state.wait })];
    case 'has read the wait': {
      const isKept = plant === 'ends of failed jobs are kept' && me.known !== null;
      const end = isKept ? me.known : (endOf(state.parent) ?? null);
      if (end === null) return [become('finds that the parent has not ended', IDLE)];
      const problem = state.parent === 'new' ? { problem: 'a job was judged before its parent had ended' } : {};
      return [become(`finds the parent ${end}`, { at: 'has read the parent', end, known: end }, problem)];
    }
    case 'has read the parent': {
      const verdict = verdictOf(TERMS, [me.end ?? 'complete']);
      const isCancelled = isOut(me.row) && plant !== 'one that was cancelled is let go';
      const keyHead = isKeyed ? readKeyHead(state.key) : undefined;
      const wait = { id: ID, piece: PIECE, isCancelled, keyHead, isToRun: verdict.to === 'run', dueAt: 0 };
      const found = waitLeft(wait);
      if (found === undefined) return [become('leaves it', IDLE)];
      const isUncounted = plant === 'those that were cancelled stay counted' && found.kind === 'over';
      const head = isUncounted ? waiting(0) : found.change;
      return [
        become('decides', { at: 'writes', todo: { head, key: found.key ?? null, isEnd: found.kind === 'ended' } }),
      ];
    }
    case 'writes': {
      const after = left(state, me, plant);
      return [become(after === undefined ? 'is refused' : 'writes', IDLE, after), become('gives up', IDLE)];
    }
  }
}

function isOut(row: Fields | null): boolean {
  return row?.['x'] === '[0]';
}

function isSame(a: Fields | null, b: Fields | null): boolean {
  return a !== null && a['x'] === b?.['x'] && a['r'] === b?.['r'];
}

function left(
  state: AfterState,
  { todo, row }: Looker,
  plant: AfterPlant | undefined,
): Partial<AfterState> | undefined {
  if (todo === null) return undefined;
  if (!isSame(state.wait, row) && plant !== 'the row of the wait may have changed') return undefined;
  const isBlind = plant === 'the head of the key may have changed';
  const change = todo.key !== null && isBlind ? { ...todo.key, expect: {} } : todo.key;
  const key = change === null ? state.key : applied(state.key, change);
  const head = applied(state.head, todo.head);
  if (key === undefined || head === undefined) return undefined;
  return { wait: null, key, head, ends: state.ends + Number(todo.isEnd) };
}

/** People find the job waiting, or leave it. */
function personSteps(state: AfterState, index: number, options: AfterModelOptions): Step<AfterState>[] {
  const me = state.people[index];
  const call = options.calls[index];
  if (me === undefined || call === undefined || me.at === 'done') return [];
  const { isKeyed = false } = options;
  const become = (what: string, next: Partial<Person>, more: Partial<AfterState> = {}): Step<AfterState> => ({
    what: `${call} ${index} ${what}`,
    state: { ...state, ...more, people: state.people.with(index, { ...me, ...next }) },
  });
  const done = { at: 'done', row: null } as const;
  if (me.at === 'begin') {
    const isThere =
      state.wait !== null && (isKeyed ? keyStandingOf(readKeyHead(state.key), ID) === 'left' : !isOut(state.wait));
    if (call === 'retry')
      return [
        isThere || state.wait === null
          ? become('finds it elsewhere', done)
          : become('reads the wait', { at: 'has read the wait', row: state.wait }),
      ];
    return [
      isThere
        ? become('reads the wait', { at: 'has read the wait', row: state.wait })
        : become('finds it elsewhere', done),
    ];
  }
  const wait = state.wait;
  if (call === 'cancel' && isKeyed) {
    const key = readKeyHead(state.key);
    const change = keyCancelled(key, ID, key);
    const after = change && applied(state.key, change);
    return [
      after === undefined
        ? become('finds it gone', done)
        : become('takes it out', done, { key: after, ends: state.ends + 1 }),
    ];
  }
  if (wait === null || !isSame(wait, me.row)) return [become('is refused', { at: 'begin', row: null })];
  switch (call) {
    case 'cancel':
      return [become('takes it out', done, { wait: { ...wait, x: '[0]' }, ends: state.ends + 1 })];
    case 'update':
      return [become('gives it a time', done, { wait: { ...wait, r: 1 } })];
    case 'retry': {
      const back = { retries: state.retries + 1 };
      if (!isKeyed) return [become('brings it back', done, { ...back, wait: { ...wait, x: '[]' } })];
      const change = jobAdded(readKeyHead(state.key), { id: ID, attempt: 0, dueAt: 999, isScheduled: true });
      const key = change && applied(state.key, change);
      return [
        key === undefined
          ? become('is refused', { at: 'begin', row: null })
          : become('brings it back', done, { ...back, key }),
      ];
    }
  }
}
