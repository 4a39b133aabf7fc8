// Explores every order of the requests by which a turn enters a state with a deadline, and by which others look whether it is over: with
// crashes, and requests that are carried out twice. Every decision is made by the functions of the library.
import { claimed, committed, F, readHead, type TurnEnd } from '../../../../src/actor/dynamodb/heads/head.ts';
import { type LateRow, lateName, lookedLate } from '../../../../src/actor/dynamodb/heads/late.ts';
import { rescued } from '../../../../src/actor/dynamodb/heads/rescued.ts';
import { applied, type Change, type Fields } from '../../../../src/engine/dynamodb/index.ts';
import type { Protocol, Step } from '../../../support/history/explore.ts';

export interface DeadlinesModelOptions {
  readonly watchers: number;
  readonly crashes?: number;
  readonly doubles?: number;
  /** The actor leaves the state in the end; else it stays there for ever, and a page has to tell so. */
  readonly leaves: boolean;
  readonly plant?: DeadlinesPlant;
}

/** Bugs to be found. */
export type DeadlinesPlant =
  | 'the row comes after the commit'
  | 'a row of a commit under way is dropped'
  | 'rows of two turns have one name';

type Write =
  | { readonly kind: 'head'; readonly change: Change }
  /** With a page in the same transaction. */
  | { readonly kind: 'page'; readonly change: Change }
  | { readonly kind: 'put'; readonly row: NamedRow }
  | { readonly kind: 'drop'; readonly row: NamedRow };

/** A row, and its key. */
interface NamedRow extends LateRow {
  readonly name: string;
}

interface Watcher {
  readonly row: NamedRow | null;
  readonly todo: readonly Write[];
}

interface Worker {
  readonly at: 'rest' | 'runs' | 'writes' | 'dead' | 'over';
  readonly todo: readonly Write[];
  /** What its turn is to do: to enter the state, then to leave it. */
  readonly turn: number;
}

export interface DeadlinesState {
  readonly head: Fields;
  readonly rows: readonly NamedRow[];
  readonly now: number;
  readonly pages: number;
  readonly worker: Worker;
  readonly watchers: readonly Watcher[];
  readonly flying: readonly Write[];
  readonly left: { readonly crashes: number; readonly doubles: number };
}

const WORKER = 7001;
const DEADLINE_MS = 1;
/** No more time passes. */
const END_MS = 2;
const IDLE: Watcher = { row: null, todo: [] };

export function deadlinesModel(options: DeadlinesModelOptions): Protocol<DeadlinesState> {
  return {
    start: {
      head: { [F.visit]: 1, [F.createdAt]: 0, [F.wakeAt]: 0, [F.state]: 'before' },
      rows: [],
      now: 0,
      pages: 0,
      worker: { at: 'rest', todo: [], turn: 1 },
      watchers: Array.from({ length: options.watchers }, () => IDLE),
      flying: [],
      left: { crashes: options.crashes ?? 0, doubles: options.doubles ?? 0 },
    },
    steps: (state) => [
      ...workerSteps(state, options),
      ...state.watchers.flatMap((_, index) => watcherSteps(state, index, options)),
      ...state.flying.map((write, index) => ({
        what: `a copy arrives: ${JSON.stringify(write)}`,
        state: { ...state, ...after(state, write), flying: state.flying.toSpliced(index, 1) },
      })),
      ...(state.now < END_MS ? [{ what: 'time passes', state: { ...state, now: state.now + 1 } }] : []),
    ],
    fault: ({ head, pages, now }) => {
      if (pages > 1) return 'two pages were opened about one visit';
      const { visit } = readHead(head);
      return pages > 0 && (visit < 2 || now < DEADLINE_MS) ? 'a page was opened too early' : undefined;
    },
    isOver: ({ head, pages, worker, watchers, rows, now }) =>
      worker.at === 'over' &&
      (readHead(head).state === 'left' || pages === 1) &&
      now === END_MS &&
      rows.length === 0 &&
      watchers.every(({ row, todo }) => row === null && todo.length === 0),
  };
}

/** @returns undefined when the condition does not hold */
function after(state: DeadlinesState, write: Write): Partial<DeadlinesState> | undefined {
  switch (write.kind) {
    case 'head':
    case 'page': {
      const head = applied(state.head, write.change);
      if (head === undefined) return undefined;
      return { head, pages: state.pages + (write.kind === 'page' ? 1 : 0) };
    }
    case 'put':
      return { rows: [...state.rows.filter((row) => row.name !== write.row.name), write.row] };
    case 'drop':
      return { rows: state.rows.filter((row) => row.name !== write.row.name) };
  }
}

function workerSteps(state: DeadlinesState, options: DeadlinesModelOptions): Step<DeadlinesState>[] {
  const me = state.worker;
  const head = readHead(state.head);
  const become = (what: string, next: Partial<Worker>, more: Partial<DeadlinesState> = {}): Step<DeadlinesState> => ({
    what: `the worker ${what}`,
    state: { ...state, ...more, worker: { ...me, ...next } },
  });
  const { crashes } = state.left;
  const dies =
    crashes > 0 && (me.at === 'runs' || me.at === 'writes')
      ? [become('dies', { at: 'dead', todo: [] }, { left: { ...state.left, crashes: crashes - 1 } })]
      : [];
  switch (me.at) {
    case 'over':
      return [];
    case 'rest': {
      const claim = claimed(head, { worker: WORKER, now: state.now, retryMs: 0, inbox: [], answered: [] });
      return [become('claims it', { at: 'runs' }, { head: applied(state.head, claim.change) ?? state.head })];
    }
    case 'dead': {
      const saved = rescued(head, WORKER, head.epoch - 1, { isSuspected: false, now: state.now, error: 'lost' });
      const freed = saved?.change === undefined ? state.head : (applied(state.head, saved.change) ?? state.head);
      return [become('is rescued', { at: head.visit > me.turn ? 'over' : 'rest' }, { head: freed })];
    }
    case 'runs':
      return [...dies, become('decides', { at: 'writes', todo: turnOf(state, options) })];
    case 'writes':
      return [...dies, ...writeSteps(state, me.todo, become, () => afterTurn(state, options))];
  }
}

function afterTurn({ worker: me }: DeadlinesState, { leaves }: DeadlinesModelOptions): Partial<Worker> {
  const todo = me.todo.slice(1);
  if (todo.length > 0) return { todo };
  return { at: me.turn === (leaves ? 2 : 1) ? 'over' : 'rest', todo, turn: me.turn + 1 };
}

function turnOf(state: DeadlinesState, { plant }: DeadlinesModelOptions): Write[] {
  const { epoch, attempt, visit, semaphores } = readHead(state.head);
  const isEntering = state.worker.turn === 1;
  const deadlineAt = Math.min(state.now + DEADLINE_MS, END_MS);
  const set = isEntering
    ? { [F.state]: 'entered', [F.deadlineAt]: deadlineAt }
    : { [F.state]: 'left', [F.deadlineAt]: null };
  const end: TurnEnd = {
    kind: 'to',
    epoch,
    worker: WORKER,
    attempt,
    semaphores,
    visit,
    delta: undefined,
    waitMs: undefined,
    timerAt: undefined,
    children: 0,
    gone: [],
    set,
  };
  const commit: Write = { kind: 'head', change: committed(end, false, state.now).change };
  if (!isEntering) return [commit];
  const row: LateRow = { at: deadlineAt, actor: 1, visit: visit + 1, epoch };
  const name = plant === 'rows of two turns have one name' ? `${row.at}` : `${row.at} ${lateName(row)}`;
  const put: Write = { kind: 'put', row: { ...row, name } };
  return plant === 'the row comes after the commit' ? [commit, put] : [put, commit];
}

function watcherSteps(state: DeadlinesState, index: number, { plant }: DeadlinesModelOptions): Step<DeadlinesState>[] {
  const me = state.watchers[index];
  if (me === undefined) return [];
  const become = (what: string, next: Partial<Watcher>, more: Partial<DeadlinesState> = {}): Step<DeadlinesState> => ({
    what: `watcher ${index} ${what}`,
    state: { ...state, ...more, watchers: state.watchers.with(index, { ...me, ...next }) },
  });
  if (me.todo.length > 0) {
    return writeSteps(state, me.todo, become, (write, isDone) => {
      // Refused: the next check looks again.
      if (write.kind === 'page' && !isDone) return IDLE;
      return { todo: me.todo.slice(1) };
    });
  }
  const { row } = me;
  if (row === null) {
    return state.rows.filter(({ at }) => at <= state.now).map((each) => become('reads a row', { row: each }));
  }
  const look = lookedLate(row, readHead(state.head), state.now);
  const drop: Write = { kind: 'drop', row };
  if (look.kind === 'late')
    return [become('finds it late', { row: null, todo: [{ kind: 'page', change: look.change }, drop] })];
  const isDropped = look.kind === 'drop' || plant === 'a row of a commit under way is dropped';
  return [become(isDropped ? 'drops it' : 'leaves it', { row: null, todo: isDropped ? [drop] : [] })];
}

function writeSteps<T>(
  state: DeadlinesState,
  [write]: readonly Write[],
  become: (what: string, next: Partial<T>, more?: Partial<DeadlinesState>) => Step<DeadlinesState>,
  next: (write: Write, isDone: boolean) => Partial<T>,
): Step<DeadlinesState>[] {
  if (write === undefined) return [];
  const done = after(state, write);
  const what = `${done === undefined ? 'is refused' : 'writes'} ${JSON.stringify(write)}`;
  const steps = [become(what, next(write, done !== undefined), done)];
  if (done !== undefined && state.left.doubles > 0) {
    const left = { ...state.left, doubles: state.left.doubles - 1 };
    steps.push(
      become(`${what}, and a copy stays under way`, next(write, true), {
        ...done,
        left,
        flying: [...state.flying, write],
      }),
    );
  }
  return steps;
}
