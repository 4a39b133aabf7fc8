// Explores every order of the requests of workers that hold an actor, since its state is paused, and of operators who pause and resume that
// state, with doubled requests. Every decision is made by the functions of the library, and every write is one of their changes.
import { claimed, F, isFree, readHead } from '../../../../src/actor/dynamodb/heads/head.ts';
import { heldByPause, holdName, letGo } from '../../../../src/actor/dynamodb/heads/pause.ts';
import { STATE_PAUSED } from '../../../../src/actor/dynamodb/heads/wake.ts';
import { applied, type Change, type Fields, isApplied } from '../../../../src/engine/dynamodb/index.ts';
import type { Protocol, Step } from '../../../support/history/explore.ts';

export interface PausesModelOptions {
  readonly workers: number;
  /** How often the state is paused; each time somebody ends that. */
  readonly pauses: number;
  /** How many writes may be carried out once more, at any later time. */
  readonly doubles?: number;
  readonly plant?: PausesPlant;
}

/** Bugs to be found. */
export type PausesPlant =
  | 'the type is read before the row is put'
  | 'an actor that is only named keeps its fence'
  | 'an actor that is let go keeps its fence'
  | 'any row is removed'
  | 'rows of two holds have one name';

type Write =
  | { readonly kind: 'head'; readonly change: Change }
  /** With a row of the line in the same transaction. */
  | { readonly kind: 'wake'; readonly change: Change }
  | { readonly kind: 'name'; readonly row: string }
  | { readonly kind: 'unname'; readonly row: string }
  | { readonly kind: 'drop line'; readonly row: number };

interface Worker {
  readonly at: 'rest' | 'checks' | 'writes';
  readonly row: number;
  /** As it was read before it was named. */
  readonly head: Fields | null;
  readonly todo: readonly Write[];
}

interface Operator {
  readonly at: 'rest' | 'lists' | 'looks' | 'writes';
  /** The rows that it has read, and not yet looked after. */
  readonly named: readonly string[];
  readonly todo: readonly Write[];
}

export interface PausesState {
  readonly isPaused: boolean;
  readonly left: { readonly pauses: number; readonly doubles: number };
  /** The head of the actor; it is over once it is claimed. */
  readonly head: Fields;
  readonly named: readonly string[];
  /** Rows of the line, by number. */
  readonly line: readonly number[];
  readonly rows: number;
  readonly workers: readonly Worker[];
  readonly operator: Operator;
  readonly flying: readonly Write[];
}

const ANY = 'any';
const RESTING = { at: 'rest', row: 0, head: null, todo: [] } as const;
const IDLE = { at: 'rest', named: [], todo: [] } as const;

export function pausesModel(options: PausesModelOptions): Protocol<PausesState> {
  return {
    start: {
      isPaused: false,
      left: { pauses: options.pauses, doubles: options.doubles ?? 0 },
      head: { [F.createdAt]: 0, [F.visit]: 1, [F.wakeAt]: 0, [F.state]: 's' },
      named: [],
      line: [1],
      rows: 1,
      workers: Array.from({ length: options.workers }, () => RESTING),
      operator: IDLE,
      flying: [],
    },
    steps: (state) => [
      ...state.workers.flatMap((_, index) => workerSteps(state, index, options)),
      ...operatorSteps(state, options),
      ...state.flying.map((write, index) => ({
        what: `a copy arrives: ${JSON.stringify(write)}`,
        state: { ...state, ...after(state, write), flying: state.flying.toSpliced(index, 1) },
      })),
    ],
    fault: () => undefined,
    isOver: ({ head, isPaused, workers, operator, line }) =>
      readHead(head).worker !== 0 &&
      !isPaused &&
      line.length === 0 &&
      operator.at === 'rest' &&
      workers.every(({ at }) => at === 'rest'),
    canonical: (state) => ({ ...state, workers: state.workers.toSorted((a, b) => order(a) - order(b)) }),
  };
}

function order(worker: Worker): number {
  return Array.from(JSON.stringify(worker)).reduce((sum, char) => (sum * 31 + char.charCodeAt(0)) % 1_000_003, 7);
}

/** @returns undefined when the condition does not hold */
function after(state: PausesState, write: Write): Partial<PausesState> | undefined {
  switch (write.kind) {
    case 'head':
    case 'wake': {
      const head = applied(state.head, write.change);
      if (head === undefined) return undefined;
      const rows = state.rows + 1;
      return write.kind === 'head' ? { head } : { head, rows, line: [...state.line, rows] };
    }
    case 'name':
      return { named: [...state.named.filter((row) => row !== write.row), write.row].sort() };
    case 'unname':
      return { named: write.row === ANY ? [] : state.named.filter((row) => row !== write.row) };
    case 'drop line':
      return { line: state.line.filter((row) => row !== write.row) };
  }
}

function workerSteps(state: PausesState, index: number, { plant }: PausesModelOptions): Step<PausesState>[] {
  const me = state.workers[index];
  if (me === undefined) return [];
  const become = (what: string, next: Partial<Worker>, more: Partial<PausesState> = {}): Step<PausesState> => ({
    what: `worker ${index} ${what}`,
    state: { ...state, ...more, workers: state.workers.with(index, { ...me, ...next }) },
  });
  const head = readHead(state.head);
  switch (me.at) {
    case 'rest':
      return state.line.flatMap((row) => {
        const drop: Write = { kind: 'drop line', row };
        if (!isFree(head)) return [become(`drops the row ${row}`, { at: 'writes', todo: [drop] })];
        const claim = claimed(head, { worker: 7001, now: 0, retryMs: 0, inbox: [], answered: [] });
        const claims = become('claims it', { at: 'writes', todo: [{ kind: 'head', change: claim.change }, drop] });
        // It may have read the types a little earlier: before the pause, or before its end.
        const names: Write = {
          kind: 'name',
          row: plant === 'rows of two holds have one name' ? 'one' : holdName(head),
        };
        const isEarly = plant === 'the type is read before the row is put' && state.isPaused;
        const held: Write[] = isEarly ? [names, { kind: 'head', change: heldByPause(head) }, drop] : [names];
        return [claims, become('names it', { at: 'writes', row, head: state.head, todo: held })];
      });
    case 'checks': {
      if (!state.isPaused || me.head === null) return [become('finds that the pause is over', RESTING)];
      const hold: Write = { kind: 'head', change: heldByPause(readHead(me.head)) };
      return [
        become('finds it paused', { at: 'writes', head: null, todo: [hold, { kind: 'drop line', row: me.row }] }),
      ];
    }
    case 'writes':
      return writeSteps(state, me.todo, become, (write, isDone): Partial<Worker> => {
        if (write.kind === 'name' && me.todo.length === 1) return { at: 'checks', todo: [] };
        const isHeld = isDone || head.held === STATE_PAUSED;
        const rest = write.kind === 'head' && !isHeld ? [] : me.todo.slice(1);
        return rest.length === 0 ? RESTING : { todo: rest };
      });
  }
}

function operatorSteps(state: PausesState, { plant }: PausesModelOptions): Step<PausesState>[] {
  const me = state.operator;
  const become = (what: string, next: Partial<Operator>, more: Partial<PausesState> = {}): Step<PausesState> => ({
    what: `the operator ${what}`,
    state: { ...state, ...more, operator: { ...me, ...next } },
  });
  const all: Step<PausesState>[] = [];
  if (!state.isPaused && state.left.pauses > 0) {
    const left = { ...state.left, pauses: state.left.pauses - 1 };
    all.push({ what: 'another operator pauses the state', state: { ...state, left, isPaused: true } });
  }
  switch (me.at) {
    case 'rest':
      return state.isPaused ? [...all, become('ends the pause', { at: 'lists' }, { isPaused: false })] : all;
    case 'lists':
      return [
        ...all,
        state.named.length === 0 ? become('finds none', IDLE) : become('finds it', { at: 'looks', named: state.named }),
      ];
    case 'looks': {
      const look = letGo(readHead(state.head), 0);
      const [row = ''] = me.named;
      const unname: Write = { kind: 'unname', row };
      const isSkipped = plant === 'an actor that is only named keeps its fence' && look.kind === 'fence';
      if (look.kind === 'drop' || isSkipped) return [...all, become('drops its row', { at: 'writes', todo: [unname] })];
      const { [F.fence]: _, ...unfenced } = look.change.set;
      const set =
        plant === 'an actor that is let go keeps its fence' && look.kind === 'wake' ? unfenced : look.change.set;
      const change = { ...look.change, set };
      const write: Write = look.kind === 'wake' ? { kind: 'wake', change } : { kind: 'head', change };
      return [...all, become('lets it go', { at: 'writes', todo: [write, unname] })];
    }
    case 'writes': {
      const forced = (write: Write): Write =>
        plant === 'any row is removed' && write.kind === 'unname' ? { kind: 'unname', row: ANY } : write;
      return [
        ...all,
        ...writeSteps(state, me.todo.map(forced), become, (write, isDone): Partial<Operator> => {
          if (!isDone && write.kind !== 'unname') return { at: 'lists', named: [], todo: [] };
          if (me.todo.length > 1) return { todo: me.todo.slice(1) };
          return me.named.length === 1 ? IDLE : { at: 'looks', named: me.named.slice(1), todo: [] };
        }),
      ];
    }
  }
}

/** The next write is carried out, or refused; a copy of it may stay under way. */
function writeSteps<T>(
  state: PausesState,
  [write]: readonly Write[],
  become: (what: string, next: Partial<T>, more?: Partial<PausesState>) => Step<PausesState>,
  next: (write: Write, isDone: boolean) => Partial<T>,
): Step<PausesState>[] {
  if (write === undefined) return [];
  const done = after(state, write);
  const what = `${done === undefined ? 'is refused' : 'writes'} ${JSON.stringify(write)}`;
  // A repetition that is refused is known by what the first one has left.
  const isKnown = 'change' in write && isApplied(state.head, write.change);
  const steps = [become(what, next(write, done !== undefined || isKnown), done)];
  if (done !== undefined && state.left.doubles > 0) {
    const left = { ...state.left, doubles: state.left.doubles - 1 };
    const flying = [...state.flying, write];
    steps.push(become(`${what}, and a copy stays under way`, next(write, true), { ...done, left, flying }));
  }
  return steps;
}
