// Explores every order of the requests of workers that hold an actor whose state they do not know, and of workers that begin and know it, with
// crashes, live workers that are declared dead, and requests that are carried out twice. Every decision is made by the functions of the library.
import {
  claimed,
  committed,
  F,
  isFree,
  markOf,
  readHead,
  type TurnEnd,
} from '../../../../src/actor/dynamodb/heads/head.ts';
import { rescued } from '../../../../src/actor/dynamodb/heads/rescued.ts';
import { heldUnknown, lookedUnknown } from '../../../../src/actor/dynamodb/heads/unknown.ts';
import { applied, type Change, type Fields } from '../../../../src/engine/dynamodb/index.ts';
import type { Protocol, Step } from '../../../support/history/explore.ts';

export interface UnknownModelOptions {
  readonly crashes?: number;
  readonly suspicions?: number;
  readonly doubles?: number;
  readonly plant?: UnknownPlant;
}

/** Bugs to be found. */
export type UnknownPlant =
  | 'workers are read before the row is put'
  | 'rows are read before the worker is listed'
  | 'a row of a turn that runs is dropped'
  | 'rows of two turns have one name'
  | 'a hold expects nothing';

type Write =
  | { readonly kind: 'head'; readonly change: Change }
  /** With a row of the line in the same transaction. */
  | { readonly kind: 'wake'; readonly change: Change }
  | { readonly kind: 'put'; readonly row: Row }
  | { readonly kind: 'drop'; readonly row: Row };

interface Row {
  readonly name: string;
  readonly epoch: number;
  readonly state: string;
}

/** Of a program that knows no state: it holds what it claims, unless another one knows it. */
interface Holder {
  readonly id: number;
  readonly at: 'rest' | 'names' | 'checks' | 'holds' | 'unnames' | 'dead';
  readonly epoch: number;
  readonly seen: readonly string[];
}

/** It begins once, and knows one of the states. */
interface Knower {
  readonly id: number;
  readonly knows: string;
  readonly at: 'begin' | 'listed' | 'looks' | 'works';
  readonly todo: readonly Row[];
  readonly left: boolean;
  readonly writes: readonly Write[];
}

export interface UnknownState {
  readonly head: Fields;
  readonly isDue: boolean;
  readonly rows: readonly Row[];
  readonly listed: readonly string[];
  readonly alive: readonly number[];
  readonly holders: readonly Holder[];
  readonly knowers: readonly Knower[];
  readonly flying: readonly Write[];
  /** `claims`: how often the holder begins a turn; without an end there would be no end of states. */
  readonly left: Readonly<Record<'claims' | 'crashes' | 'suspicions' | 'doubles', number>>;
}

const STATES = ['first', 'second'] as const;

export function unknownModel(options: UnknownModelOptions): Protocol<UnknownState> {
  const { crashes = 0, suspicions = 0, doubles = 0 } = options;
  return {
    start: {
      head: { [F.createdAt]: 0, [F.visit]: 1, [F.wakeAt]: 0, [F.state]: STATES[0] },
      isDue: true,
      rows: [],
      listed: [],
      alive: [7001],
      holders: [{ id: 7001, at: 'rest', epoch: 0, seen: [] }],
      knowers: STATES.map((knows, at) => ({ id: 7011 + at, knows, at: 'begin', todo: [], left: false, writes: [] })),
      flying: [],
      left: { claims: 3, crashes, suspicions, doubles },
    },
    steps: (state) => [
      ...state.holders.flatMap((_, index) => holderSteps(state, index, options)),
      ...state.knowers.flatMap((_, index) => knowerSteps(state, index, options)),
      ...rescueSteps(state),
      ...state.flying.map((write, index) => ({
        what: `a copy arrives: ${JSON.stringify(write)}`,
        state: { ...state, ...after(state, write), flying: state.flying.toSpliced(index, 1) },
      })),
    ],
    fault: () => undefined,
    isOver: ({ head, knowers, holders }) =>
      readHead(head).isFinal &&
      knowers.every(({ at, writes }) => at === 'works' && writes.length === 0) &&
      holders.every(({ at }) => at === 'rest' || at === 'dead'),
  };
}

function after(state: UnknownState, write: Write): Partial<UnknownState> | undefined {
  switch (write.kind) {
    case 'head':
    case 'wake': {
      const head = applied(state.head, write.change);
      return head === undefined ? undefined : { head, isDue: state.isDue || write.kind === 'wake' };
    }
    case 'put':
      return { rows: [...state.rows.filter(({ name }) => name !== write.row.name), write.row] };
    case 'drop':
      return { rows: state.rows.filter(({ name, epoch }) => name !== write.row.name || epoch !== write.row.epoch) };
  }
}

/** An actor of a worker that is gone is freed, and due. */
function rescueSteps(state: UnknownState): Step<UnknownState>[] {
  const head = readHead(state.head);
  if (head.worker === 0 || state.alive.includes(head.worker)) return [];
  const saved = rescued(head, head.worker, head.epoch - 1, { isSuspected: true, now: 0, error: 'lost' });
  const freed = saved?.change === undefined ? undefined : applied(state.head, saved.change);
  return freed === undefined ? [] : [{ what: 'the actor is rescued', state: { ...state, head: freed, isDue: true } }];
}

type Become<T> = (what: string, next: Partial<T>, more?: Partial<UnknownState>) => Step<UnknownState>;

function carried<T>(state: UnknownState, write: Write, become: Become<T>, next: Partial<T>): Step<UnknownState>[] {
  const done = after(state, write);
  const what = `${done === undefined ? 'is refused' : 'writes'} ${JSON.stringify(write)}`;
  const steps = [become(what, next, done)];
  if (done !== undefined && write.kind !== 'wake' && state.left.doubles > 0) {
    const left = { ...state.left, doubles: state.left.doubles - 1 };
    steps.push(
      become(`${what}, and a copy stays under way`, next, { ...done, left, flying: [...state.flying, write] }),
    );
  }
  return steps;
}

function rowOf(state: UnknownState, epoch: number, { plant }: UnknownModelOptions): Row {
  const name = plant === 'rows of two turns have one name' ? 'one' : String(epoch);
  return { name, epoch, state: readHead(state.head).state };
}

/** It claims what is due, and holds it, unless somebody knows the state. */
function holderSteps(state: UnknownState, index: number, options: UnknownModelOptions): Step<UnknownState>[] {
  const me = state.holders[index];
  if (me === undefined || me.at === 'dead') return [];
  const become: Become<Holder> = (what, next, more = {}) => ({
    what: `holder ${me.id} ${what}`,
    state: { ...state, ...more, holders: state.holders.with(index, { ...me, ...next }) },
  });
  const { plant } = options;
  const all: Step<UnknownState>[] = [];
  const gone = state.alive.filter((id) => id !== me.id);
  if (me.at !== 'rest' && state.alive.includes(me.id)) {
    if (state.left.crashes > 0) {
      all.push(
        become('dies', { at: 'dead' }, { alive: gone, left: { ...state.left, crashes: state.left.crashes - 1 } }),
      );
    }
    if (state.left.suspicions > 0) {
      all.push(
        become('is declared dead', {}, { alive: gone, left: { ...state.left, suspicions: state.left.suspicions - 1 } }),
      );
    }
  }
  const head = readHead(state.head);
  const rests = { at: 'rest', seen: [] } as const;
  switch (me.at) {
    case 'rest': {
      if (!state.isDue || !isFree(head) || !state.alive.includes(me.id) || state.left.claims === 0) return all;
      const claim = claimed(head, { worker: me.id, now: 0, retryMs: 0, inbox: [], answered: [] });
      const seen = plant === 'workers are read before the row is put' ? state.listed : [];
      return [
        ...all,
        become(
          'claims it',
          { at: 'names', epoch: claim.epoch, seen },
          {
            head: applied(state.head, claim.change) ?? state.head,
            isDue: false,
            left: { ...state.left, claims: state.left.claims - 1 },
          },
        ),
      ];
    }
    case 'names':
      return [
        ...all,
        ...carried(state, { kind: 'put', row: rowOf(state, me.epoch, options) }, become, { at: 'checks' }),
      ];
    case 'checks': {
      const seen = plant === 'workers are read before the row is put' ? me.seen : state.listed;
      return [...all, become('reads the workers', { at: seen.includes(head.state) ? 'unnames' : 'holds', seen: [] })];
    }
    case 'holds': {
      const change = heldUnknown(head, { epoch: me.epoch, worker: me.id }, 0, 'unknown');
      const planted = plant === 'a hold expects nothing' ? { ...change, expect: {} } : change;
      return [...all, ...carried(state, { kind: 'head', change: planted }, become, rests)];
    }
    case 'unnames': {
      // It gives the turn back, for the worker that knows the state.
      const drop: Write = { kind: 'drop', row: rowOf(state, me.epoch, options) };
      const { change } = committed(endOf(me.epoch, me.id, 'released'), markOf(head), 0);
      const freed = applied(state.head, change);
      const more = freed === undefined ? {} : { head: freed, isDue: true };
      return [...all, become('gives it back', rests, { ...after(state, drop), ...more })];
    }
  }
}

function endOf(epoch: number, worker: number, kind: TurnEnd['kind'], set: TurnEnd['set'] = {}): TurnEnd {
  const common = { delta: undefined, waitMs: 0, timerAt: undefined, children: 0, gone: [], semaphores: {} };
  return { kind, epoch, worker, attempt: 1, visit: 1, set, ...common };
}

/** It lists itself, reads the rows, lets go what it knows; then it runs what is due in its state. */
function knowerSteps(state: UnknownState, index: number, options: UnknownModelOptions): Step<UnknownState>[] {
  const me = state.knowers[index];
  if (me === undefined) return [];
  const become: Become<Knower> = (what, next, more = {}) => ({
    what: `knower ${me.id} ${what}`,
    state: { ...state, ...more, knowers: state.knowers.with(index, { ...me, ...next }) },
  });
  const { plant } = options;
  const mine = state.rows.filter((row) => row.state === me.knows);
  const [write] = me.writes;
  if (write !== undefined) {
    const isRefused = after(state, write) === undefined;
    // Refused: it looks again later.
    return carried(state, write, become, isRefused ? { writes: [], left: true } : { writes: me.writes.slice(1) });
  }
  const head = readHead(state.head);
  switch (me.at) {
    case 'begin': {
      const isEarly = plant === 'rows are read before the worker is listed';
      if (isEarly) return [become('reads the rows', { at: 'listed', todo: mine })];
      return [become('lists itself', { at: 'listed' }, { listed: [...new Set([...state.listed, me.knows])].sort() })];
    }
    case 'listed':
      if (plant === 'rows are read before the worker is listed') {
        return [become('lists itself', { at: 'looks' }, { listed: [...new Set([...state.listed, me.knows])].sort() })];
      }
      return [become('reads the rows', { at: 'looks', todo: mine, left: false })];
    case 'looks': {
      const [row, ...todo] = me.todo;
      if (row === undefined) return [become('has looked', { at: 'works' })];
      const look = lookedUnknown(head, row.epoch, 0);
      const drop: Write = { kind: 'drop', row };
      if (look.kind === 'leave' && plant !== 'a row of a turn that runs is dropped')
        return [become('leaves it', { todo, left: true })];
      const writes: Write[] = look.kind === 'wake' ? [{ kind: 'wake', change: look.change }, drop] : [drop];
      return [become(look.kind === 'wake' ? 'lets it go' : 'drops the row', { todo, writes })];
    }
    case 'works': {
      const all: Step<UnknownState>[] = me.left ? [become('looks again', { at: 'listed' })] : [];
      if (!state.isDue || !isFree(head) || head.state !== me.knows) return all;
      const claim = claimed(head, { worker: me.id, now: 0, retryMs: 0, inbox: [], answered: [] });
      const now = applied(state.head, claim.change);
      if (now === undefined) return all;
      // Its turn ends in the same step: it leads to the second state, or to the end.
      const isLast = me.knows === STATES[1];
      const end = endOf(
        claim.epoch,
        me.id,
        isLast ? 'done' : 'to',
        isLast ? { [F.finishedAt]: 1 } : { [F.state]: STATES[1] },
      );
      const next = applied(now, committed(end, false, 0).change) ?? now;
      return [...all, become('runs its turn', {}, { head: next, isDue: !isLast })];
    }
  }
}
