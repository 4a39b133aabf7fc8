// Explores every order of the requests of producers and workers of one actor, with crashes, lost and doubled answers, and live workers that
// are declared dead. Every decision is made by the functions of the library, and every write is one of their changes.
import {
  ALONE,
  absorbedFrom,
  claimed,
  committed,
  F,
  type InboxRow,
  isCommitted,
  type Mark,
  markOf,
  readHead,
  type TurnEnd,
} from '../../../../src/actor/dynamodb/heads/head.ts';
import { rescued } from '../../../../src/actor/dynamodb/heads/rescued.ts';
import { looked, type WakeRow } from '../../../../src/actor/dynamodb/heads/wake.ts';
import { applied, type Change, type Fields } from '../../../../src/engine/dynamodb/index.ts';
import type { Protocol, Step } from '../../../support/history/explore.ts';

export interface ActorModelOptions {
  readonly raisers: number;
  readonly workers: number;
  readonly crashes?: number;
  /** How many answers may be lost after the request was carried out. */
  readonly losses?: number;
  /** How many writes may be carried out once more, at any later time. */
  readonly doubles?: number;
  /** How many live workers may be declared dead. */
  readonly suspicions?: number;
  /** How many turns may fail. */
  readonly failures?: number;
  /** How many turns may nap until the time passes. */
  readonly naps?: number;
  /** An operator pauses the actor once, and ends that. */
  readonly pauses?: number;
  /** Children that it has, each of which ends once. Where there are any kind of children, it ends when none is left. */
  readonly children?: number;
  /** How many children its turns may create. */
  readonly births?: number;
  /** How many children others may give it. */
  readonly adoptions?: number;
  /** It ends as soon as it can, and is removed then. */
  readonly isRemoved?: boolean;
  readonly plant?: Plant;
}

/** Bugs to be found. */
export type Plant =
  | 'claims expect nothing'
  | 'commits expect no mark'
  | 'what runs is not marked'
  | 'a commit under way loses its row'
  | 'the row comes after the commit'
  | 'absorbed names are forgotten'
  | 'the inbox is emptied before the claim'
  | 'claims are not noted'
  | 'a noted claim is not fenced'
  | 'names of notes are used again'
  | 'the living are rescued without a sign'
  | 'a pause forgets what came'
  | 'done() expects no count of children'
  | 'births are counted by the next turn'
  | 'what comes for the removed stays'
  | 'a removal looks once'
  | 'claims expect no creation';

/** One write. All of them may be repeated. */
export type Write =
  | { readonly kind: 'head'; readonly change: Change; readonly lowers: number; readonly births?: number }
  | { readonly kind: 'put row'; readonly row: WakeRow }
  | { readonly kind: 'drop row'; readonly name: string }
  | { readonly kind: 'put note'; readonly note: Note }
  | { readonly kind: 'drop note'; readonly name: string }
  | { readonly kind: 'drop inbox'; readonly names: readonly string[] };

/** That a worker is about to claim the actor at this epoch. */
export interface Note {
  readonly name: string;
  readonly worker: number;
  readonly epoch: number;
}

export interface Turn {
  readonly epoch: number;
  readonly attempt: number;
  readonly visit: number;
  readonly semaphores: Readonly<Record<string, number>>;
  readonly note: string;
  /** That were not final when it was claimed. */
  readonly children: number;
  /** The field of the head that counts them. */
  readonly counted: number | null;
}

export interface Worker {
  readonly id: number;
  readonly at: 'rest' | 'look' | 'write' | 'run';
  readonly isDead: boolean;
  /** The row that it has read, before it reads the head. */
  readonly row: WakeRow | null;
  /** What it writes, one after another. */
  readonly todo: readonly Write[];
  /** Its turn, or the one that it is about to have. */
  readonly turn: Turn | null;
  /** The outcome of its turn, while it is written. */
  readonly end: TurnEnd | null;
  /** It was declared dead and has claimed since. */
  readonly isTired: boolean;
}

type Faults = 'births' | 'adoptions' | 'crashes' | 'losses' | 'doubles' | 'suspicions' | 'failures' | 'naps' | 'pauses';

export interface ActorState {
  readonly head: Fields;
  readonly rows: readonly WakeRow[];
  readonly inbox: readonly InboxRow[];
  readonly notes: readonly Note[];
  readonly alive: readonly number[];
  readonly raisers: readonly ('begin' | 'has looked' | 'done')[];
  /** How far its removal has come. */
  readonly removal: 'never' | 'no' | 'has begun' | 'has no head' | 'done';
  readonly workers: readonly Worker[];
  readonly flying: readonly Write[];
  readonly now: number;
  /** How much was taken from the semaphore by turns that were committed. */
  readonly lowered: number;
  /** Children that are not final. */
  readonly living: number;
  /** How many have ended. */
  readonly ended: number;
  readonly left: Readonly<Record<Faults, number>>;
}

const SEMAPHORE = 'go';
/** Whether its turns come to an end at all. */
function hasEnd({ children = 0, births = 0, adoptions = 0, isRemoved = false }: ActorModelOptions): boolean {
  return children + births + adoptions > 0 || isRemoved;
}

const RESTING = { at: 'rest', row: null, todo: [], turn: null, end: null } as const;

export function actorModel(options: ActorModelOptions): Protocol<ActorState> {
  const { crashes = 0, losses = 0, doubles = 0, suspicions = 0, failures = 0, naps = 0, pauses = 0 } = options;
  const { children = 0, births = 0, adoptions = 0 } = options;
  const ids = Array.from({ length: options.workers }, (_, at) => 7001 + at);
  return {
    start: {
      // As it was created.
      head: {
        [F.visit]: 1,
        [F.createdAt]: 0,
        [F.wakeAt]: 0,
        [F.state]: 's',
        ...(children > 0 && { [F.children]: children }),
      },
      rows: [{ at: 0, actor: 1, kind: 'time', epoch: 0, name: 'born' }],
      inbox: [],
      notes: [],
      alive: ids,
      raisers: Array.from({ length: options.raisers }, () => 'begin' as const),
      removal: options.isRemoved === true ? 'no' : 'never',
      workers: ids.map((id) => ({ ...RESTING, id, isDead: false, isTired: false })),
      flying: [],
      now: 0,
      lowered: 0,
      living: children,
      ended: 0,
      left: { births, adoptions, crashes, losses, doubles, suspicions, failures, naps, pauses },
    },
    steps: (state) => [
      ...state.raisers.flatMap((_, index) => raiseSteps(state, index, options)),
      ...removalSteps(state, options),
      ...state.workers.flatMap((_, index) => workerSteps(state, index, options)),
      ...flyingSteps(state),
      ...pauseSteps(state, options),
      ...familySteps(state),
      ...timeSteps(state),
    ],
    fault: (state) => faultOf(state),
    isOver: (state) =>
      state.raisers.every((at) => at === 'done') &&
      (options.isRemoved === true ? state.removal === 'done' : readHead(state.head).isFinal === hasEnd(options)) &&
      (options.isRemoved === true || state.lowered === options.raisers) &&
      state.living === 0 &&
      state.workers.every(({ at, isDead }) => isDead || at === 'rest') &&
      isQuiet(state),
  };
}

/** As long as something waits for a time. What was decided before it had passed is decided anew later, and waits for a later one. */
function timeSteps(state: ActorState): Step<ActorState>[] {
  const isAwaited = state.rows.some(({ at }) => at > state.now);
  return isAwaited ? [{ what: 'time passes', state: { ...state, now: state.now + 1 } }] : [];
}

/** Nothing runs, is due, or will be. */
function isQuiet({ head, rows, inbox, notes, alive }: ActorState): boolean {
  const { worker, wakeAt, isPaused, isFinal } = readHead(head);
  // The rows of a final actor are its removal's.
  const isClean =
    rows.length === 0 && (isFinal || inbox.length === 0) && notes.every((note) => alive.includes(note.worker));
  return worker === 0 && wakeAt === undefined && !isPaused && isClean;
}

function faultOf(state: ActorState): string | undefined {
  const { lowered, raisers, workers, alive, head, living, removal } = state;
  if ((removal === 'has no head' || removal === 'done') && Object.keys(head).length > 0)
    return 'a removed actor has a head again';
  if (readHead(head).children < 0) return 'the end of a child was counted twice';
  if (readHead(head).isFinal && living > 0) return 'an actor has ended before its child';
  if (lowered > raisers.filter((at) => at === 'done').length) return 'a raised semaphore was taken twice';
  const running = workers.filter((one) => one.at === 'run' && !one.isDead && alive.includes(one.id));
  if (running.length > 1) return 'two run a turn of one actor';
  const [one] = running;
  const { worker, epoch } = readHead(head);
  if (one?.turn !== undefined && one.turn !== null && (worker !== one.id || epoch !== one.turn.epoch)) {
    return 'a living worker has lost its turn';
  }
  return undefined;
}

/** It reads the head, then writes in one transaction, which the service carries out once, the row of the inbox and the row that wakes. */
function raiseSteps(state: ActorState, index: number, { isRemoved = false }: ActorModelOptions): Step<ActorState>[] {
  const at = state.raisers[index];
  const become = (what: string, next: 'has looked' | 'done', more: Partial<ActorState> = {}): Step<ActorState>[] => [
    { what: `raiser ${index} ${what}`, state: { ...state, ...more, raisers: state.raisers.with(index, next) } },
  ];
  if (at === 'done') return [];
  if (at === 'begin' && isRemoved) {
    const isThere = !isGone(state) && !readHead(state.head).isFinal;
    return isThere ? become('finds it', 'has looked') : become('is refused', 'done');
  }
  const name = `r${index}`;
  const inbox = [...state.inbox, { name, semaphore: SEMAPHORE, n: 1 }];
  const rows = [...state.rows, { at: state.now, actor: 1, kind: 'signal', epoch: 0, name } as const];
  return become('raises', 'done', { inbox, rows });
}

function isGone({ removal }: ActorState): boolean {
  return removal === 'has no head' || removal === 'done';
}

/** All its rows, then the head, then what has come meanwhile. */
function removalSteps(state: ActorState, { isRemoved = false, plant }: ActorModelOptions): Step<ActorState>[] {
  if (!isRemoved) return [];
  const empties = (removal: ActorState['removal']): Step<ActorState>[] => [
    { what: 'its inbox is emptied', state: { ...state, inbox: [], removal } },
  ];
  switch (state.removal) {
    case 'no':
      return readHead(state.head).isFinal ? empties('has begun') : [];
    case 'has begun': {
      const removal = plant === 'a removal looks once' ? 'done' : 'has no head';
      return [{ what: 'its head is removed', state: { ...state, head: {}, removal } }];
    }
    case 'has no head':
      return empties('done');
    case 'never':
    case 'done':
      return [];
  }
}

/** A child ends, or somebody gives it another one: a transaction each. */
function familySteps(state: ActorState): Step<ActorState>[] {
  const all: Step<ActorState>[] = [];
  const name = `end${state.ended}`;
  if (state.living > 0) {
    const inbox = [...state.inbox, { name, semaphore: undefined, n: 1 }];
    const rows = [...state.rows, { at: state.now, actor: 1, kind: 'child', epoch: 0, name } as const];
    all.push({
      what: 'a child ends',
      state: { ...state, inbox, rows, living: state.living - 1, ended: state.ended + 1 },
    });
  }
  if (state.left.adoptions > 0 && !readHead(state.head).isFinal) {
    const head = applied(state.head, { expect: { [F.finishedAt]: null }, set: {}, add: { [F.children]: 1 } });
    const born = { living: state.living + 1, ...spend(state, 'adoptions') };
    if (head !== undefined) all.push({ what: 'it is given a child', state: { ...state, head, ...born } });
  }
  return all;
}

type Become = (what: string, next: Partial<Worker>, more?: Partial<ActorState>) => Step<ActorState>;

function workerSteps(state: ActorState, index: number, options: ActorModelOptions): Step<ActorState>[] {
  const me = state.workers[index];
  if (me === undefined || me.isDead) return [];
  const become: Become = (what, next, more = {}) => ({
    what: `worker ${me.id} ${what}`,
    state: { ...state, ...more, workers: state.workers.with(index, { ...me, ...next }) },
  });
  const all: Step<ActorState>[] = [];
  const others = state.workers.filter((other, at) => at !== index && !other.isDead);
  if (state.left.crashes > 0 && others.length > 0) all.push(become('dies', { isDead: true }, spend(state, 'crashes')));
  if (!state.alive.includes(me.id)) {
    const id = me.id + 10;
    const alive = [...state.alive, id].sort((a, b) => a - b);
    all.push(become('learns that it was declared dead', { ...RESTING, id, isTired: false }, { alive }));
  }
  switch (me.at) {
    case 'rest':
      return [...all, ...restSteps(state, me, options, become)];
    case 'look':
      return [...all, ...lookSteps(state, me, options, become)];
    case 'write':
      return [...all, ...writeSteps(state, me, options, become)];
    case 'run':
      return [...all, ...endSteps(state, me, options, become)];
  }
}

function restSteps(state: ActorState, me: Worker, options: ActorModelOptions, become: Become): Step<ActorState>[] {
  const all = state.rows
    .filter(({ at }) => at <= state.now)
    .map((row) => become(`reads the row ${row.name}`, { at: 'look', row }));
  for (const other of state.workers) {
    if (other.id === me.id || !state.alive.includes(other.id)) continue;
    if (!other.isDead && state.left.suspicions === 0) continue;
    const alive = state.alive.filter((id) => id !== other.id);
    all.push(
      become(`declares worker ${other.id} dead`, {}, { alive, ...(other.isDead ? {} : spend(state, 'suspicions')) }),
    );
  }
  for (const note of state.notes) {
    const isBlind = options.plant === 'the living are rescued without a sign' && note.worker !== me.id;
    if (state.alive.includes(note.worker) && !isBlind) continue;
    all.push(become(`looks after the note ${note.name}`, { at: 'write', todo: rescueOf(state, note, options) }));
  }
  return all;
}

function rescueOf(state: ActorState, note: Note, { plant }: ActorModelOptions): Write[] {
  const head = readHead(state.head);
  const saved = rescued(head, note.worker, note.epoch, { isSuspected: false, now: state.now, error: 'lost' });
  const drop: Write = { kind: 'drop note', name: note.name };
  if (isGone(state) || saved === undefined || (plant === 'a noted claim is not fenced' && saved.row === undefined))
    return [drop];
  const change: Write[] = saved.change === undefined ? [] : [{ kind: 'head', change: saved.change, lowers: 0 }];
  if (saved.row === undefined) return [...change, drop];
  return [...change, { kind: 'put row', row: timeRow(saved.row.at, saved.row.epoch) }, drop];
}

function timeRow(at: number, epoch: number): WakeRow {
  return { at, actor: 1, kind: 'time', epoch, name: `t${epoch}.${at}` };
}

/** It reads the head and the inbox, and decides. */
function lookSteps(state: ActorState, me: Worker, options: ActorModelOptions, become: Become): Step<ActorState>[] {
  const { row } = me;
  if (row === null) return [];
  const head = readHead(state.head);
  const { inbox, now } = state;
  // One line for all: the one of those that run alone is the same to it.
  const look = looked(row, isGone(state) ? undefined : head, {
    now,
    alone: head.lost === ALONE,
    inbox,
    eachChild: false,
    always: {},
  });
  const drop: Write = { kind: 'drop row', name: row.name };
  const rests = (what: string): Step<ActorState>[] => [become(what, RESTING)];
  switch (look.kind) {
    case 'leave':
      if (options.plant === 'a commit under way loses its row')
        return [become('drops it', { at: 'write', row: null, todo: [drop] })];
      return rests('leaves it');
    case 'move':
      return rests('moves it');
    case 'drop': {
      const isForgotten = options.plant === 'what runs is not marked' && head.worker !== 0;
      const isUnpaused = options.plant === 'a pause forgets what came' && head.isPaused;
      const change: Write[] =
        look.change === undefined || isForgotten || isUnpaused
          ? []
          : [{ kind: 'head', change: look.change, lowers: 0 }];
      const isSwept = isGone(state) && row.kind !== 'time' && options.plant !== 'what comes for the removed stays';
      const sweep: Write[] = isSwept ? [{ kind: 'drop inbox', names: inbox.map(({ name }) => name) }] : [];
      return [become('drops it', { at: 'write', row: null, todo: [...change, ...sweep, drop] })];
    }
    case 'defer': {
      const later = { ...row, at: look.until, name: `${row.name}'` };
      return [become('defers it', { at: 'write', row: null, todo: [{ kind: 'put row', row: later }, drop] })];
    }
    case 'claim': {
      // A worker that was declared dead claims at most once more before it learns this. Otherwise the states would have no end.
      if (me.isTired) return rests('is tired');
      return [become('decides on a claim', claimOf(state, me, drop, options))];
    }
  }
}

function claimOf(state: ActorState, me: Worker, drop: Write, { plant }: ActorModelOptions): Partial<Worker> {
  const head = readHead(state.head);
  const known = plant === 'absorbed names are forgotten' ? { ...head, absorbed: [] } : head;
  const claim = claimed(known, {
    worker: me.id,
    now: state.now,
    retryMs: 0,
    inbox: state.inbox,
    answered: me.row === null || me.row.kind === 'time' ? [] : [me.row.name],
  });
  const { [F.createdAt]: _, ...unborn } = claim.change.expect;
  const expects = plant === 'claims expect no creation' ? unborn : claim.change.expect;
  const change = { ...claim.change, expect: plant === 'claims expect nothing' ? {} : expects };
  const unique = plant === 'names of notes are used again' ? '' : `.${head.fence}`;
  const note = `${me.id}.${head.epoch}${unique}`;
  const put: Write = { kind: 'put note', note: { name: note, worker: me.id, epoch: head.epoch } };
  const empty: Write = { kind: 'drop inbox', names: state.inbox.map(({ name }) => name) };
  const claims: Write = { kind: 'head', change, lowers: 0 };
  const notes = plant === 'claims are not noted' ? [] : [put];
  const todo: Write[] =
    plant === 'the inbox is emptied before the claim'
      ? [...notes, empty, claims, drop]
      : [...notes, claims, drop, ...(state.inbox.length === 0 ? [] : [empty])];
  const { epoch, attempt, semaphores } = claim;
  const after = applied(state.head, claim.change)?.[F.children];
  const counted = after === undefined ? null : Number(after);
  const turn: Turn = { epoch, attempt, visit: head.visit, semaphores, note, children: claim.children, counted };
  return { at: 'write', row: null, todo, turn, isTired: !state.alive.includes(me.id) };
}

/** The outcome of its turn. */
function endSteps(state: ActorState, me: Worker, options: ActorModelOptions, become: Become): Step<ActorState>[] {
  const { turn } = me;
  if (turn === null) return [];
  const common = { ...turn, worker: me.id, timerAt: undefined, children: 0, gone: [], set: {} };
  const taken = turn.semaphores[SEMAPHORE] ?? 0;
  const delta = taken === 0 ? undefined : { [SEMAPHORE]: -taken };
  if (hasEnd(options) && turn.children <= 0 && state.left.births === 0) {
    const end: TurnEnd = { ...common, kind: 'done', delta, waitMs: undefined, set: { [F.finishedAt]: 1 } };
    return [become('is done', { ...commitOf(state, me, end, false, options) })];
  }
  if (state.left.births > 0) {
    const end: TurnEnd = { ...common, kind: 'stay', delta, waitMs: undefined, children: 1 };
    return [become('creates a child', { ...commitOf(state, me, end, false, options) }, spend(state, 'births'))];
  }
  const ends: [string, TurnEnd, Partial<ActorState>][] = [
    ['hibernates', { ...common, kind: 'stay', delta, waitMs: undefined }, {}],
  ];
  if (state.left.naps > 0) ends.push(['naps', { ...common, kind: 'stay', delta, waitMs: 1 }, spend(state, 'naps')]);
  if (state.left.failures > 0) {
    ends.push(['fails', { ...common, kind: 'failed', delta: undefined, waitMs: 1 }, spend(state, 'failures')]);
  }
  return ends.map(([what, end, more]) => become(what, { ...commitOf(state, me, end, false, options) }, more));
}

function commitOf(
  state: ActorState,
  me: Worker,
  end: TurnEnd,
  mark: Mark,
  options: ActorModelOptions,
): Partial<Worker> {
  const { plant } = options;
  if (end.kind === 'done') {
    const { children } = readHead(state.head);
    const open = (me.turn?.counted ?? 0) > 0 ? children - absorbedFrom(readHead(state.head), state.inbox).ended : 0;
    if (open > 0) return commitOf(state, me, { ...end, kind: 'failed', waitMs: 0, set: {} }, mark, options);
  }
  const family = plant === 'done() expects no count of children' ? undefined : { field: me.turn?.counted ?? null };
  const late = plant === 'births are counted by the next turn' ? { ...end, children: 0 } : end;
  const { change, wakeAt } = committed(late, mark, state.now, end.kind === 'done' ? family : undefined);
  const { [F.signal]: _, ...unmarked } = change.expect;
  const expect = plant === 'commits expect no mark' ? unmarked : change.expect;
  const lowers = -(end.delta?.[SEMAPHORE] ?? 0);
  const commit: Write = { kind: 'head', change: { ...change, expect }, lowers, births: end.children };
  const row: Write[] = wakeAt === undefined ? [] : [{ kind: 'put row', row: timeRow(wakeAt, end.epoch) }];
  const drop: Write = { kind: 'drop note', name: me.turn?.note ?? '' };
  const todo = plant === 'the row comes after the commit' ? [commit, ...row, drop] : [...row, commit, drop];
  return { at: 'write', todo, end };
}

function writeSteps(state: ActorState, me: Worker, options: ActorModelOptions, become: Become): Step<ActorState>[] {
  const [write, ...rest] = me.todo;
  if (write === undefined) return [];
  const next = afterWrite(me, rest);
  const after = carriedOut(state, write);
  if (after === undefined) return [refused(state, me, rest, options, become)];
  const what = `writes ${describe(write)}`;
  const steps = [become(what, next, after)];
  if (state.left.losses > 0) steps.push(become(`${what}, unheard`, {}, { ...after, ...spend(state, 'losses') }));
  if (state.left.doubles > 0) {
    const flying = [...state.flying, write];
    steps.push(become(`${what}, and a copy stays under way`, next, { ...after, flying, ...spend(state, 'doubles') }));
  }
  return steps;
}

/** The last write of a claim begins the turn; else all is done. */
function afterWrite(me: Pick<Worker, 'turn' | 'end'>, rest: readonly Write[]): Partial<Worker> {
  if (rest.length > 0) return { todo: rest };
  return me.turn !== null && me.end === null ? { at: 'run', todo: [] } : RESTING;
}

/** A change of the head is refused: because it was carried out before, or by what others did. */
function refused(
  state: ActorState,
  me: Worker,
  rest: readonly Write[],
  options: ActorModelOptions,
  become: Become,
): Step<ActorState> {
  const head = readHead(state.head);
  const { turn, end } = me;
  if (turn !== null && end === null) {
    const isMine = head.worker === me.id && head.epoch === turn.epoch;
    return isMine ? become('knows its claim again', afterWrite(me, rest)) : become('is refused the claim', RESTING);
  }
  if (turn !== null && end !== null) {
    if (isCommitted(head, turn.epoch)) return become('knows its commit again', afterWrite(me, rest));
    const isMine = head.worker === me.id && head.epoch === turn.epoch;
    const counted = state.head[F.children] === undefined ? null : Number(state.head[F.children]);
    const now = { ...me, turn: { ...turn, counted } };
    if (isMine) {
      const again = commitOf(state, now, end, markOf(head), options);
      return become('decides anew on its commit', { turn: now.turn, ...again });
    }
    return become('has lost its turn', RESTING);
  }
  return become('is refused', RESTING);
}

/** @returns undefined when the condition does not hold */
function carriedOut(state: ActorState, write: Write): Partial<ActorState> | undefined {
  switch (write.kind) {
    case 'head': {
      const head = applied(state.head, write.change);
      return head === undefined
        ? undefined
        : { head, lowered: state.lowered + write.lowers, living: state.living + (write.births ?? 0) };
    }
    case 'put row':
      return { rows: [...state.rows.filter(({ name }) => name !== write.row.name), write.row] };
    case 'drop row':
      return { rows: state.rows.filter(({ name }) => name !== write.name) };
    case 'put note':
      return { notes: [...state.notes.filter(({ name }) => name !== write.note.name), write.note] };
    case 'drop note':
      return { notes: state.notes.filter(({ name }) => name !== write.name) };
    case 'drop inbox':
      return { inbox: state.inbox.filter(({ name }) => !write.names.includes(name)) };
  }
}

function describe(write: Write): string {
  switch (write.kind) {
    case 'head':
      return JSON.stringify(write.change);
    case 'put row':
      return `the row ${write.row.name}`;
    case 'put note':
      return `the note ${write.note.name}`;
    case 'drop row':
    case 'drop note':
      return `that ${write.name} is gone`;
    case 'drop inbox':
      return `that ${write.names.join()} are gone`;
  }
}

function flyingSteps(state: ActorState): Step<ActorState>[] {
  return state.flying.map((write, index) => {
    const after = carriedOut(state, write) ?? {};
    return {
      what: `a copy arrives: ${describe(write)}`,
      state: { ...state, ...after, flying: state.flying.toSpliced(index, 1) },
    };
  });
}

/** By hand: a pause; its end is one transaction with the row that wakes. */
function pauseSteps(state: ActorState, _options: ActorModelOptions): Step<ActorState>[] {
  const head = readHead(state.head);
  if (head.isPaused) {
    const { [F.pausedAt]: _, ...fields } = state.head;
    const { [F.signal]: __, ...rest } = fields;
    const resumed = head.worker === 0 ? rest : fields;
    const signal: WakeRow = { at: state.now, actor: 1, kind: 'signal', epoch: 0, name: 'resumed' };
    const time: WakeRow = { ...timeRow(head.wakeAt ?? 0, head.epoch), name: 'resumed' };
    const row = head.signal && head.worker === 0 ? [signal] : head.wakeAt === undefined ? [] : [time];
    return [{ what: 'the pause ends', state: { ...state, head: resumed, rows: [...state.rows, ...row] } }];
  }
  if (state.left.pauses === 0 || head.isFinal) return [];
  return [
    { what: 'a pause', state: { ...state, head: { ...state.head, [F.pausedAt]: 1 }, ...spend(state, 'pauses') } },
  ];
}

function spend(state: ActorState, what: Faults): Pick<ActorState, 'left'> {
  return { left: { ...state.left, [what]: state.left[what] - 1 } };
}

/**
 * The text of a state. Alike are states that differ in the order of rows, in which worker is which, in what the dead were doing, or in a
 * copy whose condition does not hold: no field that it names ever has an old value again, unless the actor is removed.
 */
export function nameOfState(state: ActorState): string {
  const orderOf = (worker: Worker): string =>
    `${state.alive.includes(worker.id)} ${JSON.stringify(worker).replace(ID, '')}`;
  const workers = state.workers
    .map((one) => (one.isDead ? { ...one, ...RESTING, isTired: false } : one))
    .toSorted((a, b) => (orderOf(a) < orderOf(b) ? -1 : 1));
  const isPast = (write: Write): boolean => state.removal === 'never' && carriedOut(state, write) === undefined;
  const flying = state.flying.filter((write) => !isPast(write));
  const text = JSON.stringify({ ...state, workers, head: sorted(state.head), flying, alive: [] });
  const ids = new Map([...new Set(text.match(ID))].map((id, index) => [id, String(7001 + index)]));
  const rename = (id: string): string => ids.get(id) ?? id;
  const named = JSON.parse(text.replace(ID, rename));
  const alive = state.alive.map((id) => Number(ids.get(String(id)))).sort((a, b) => a - b);
  const { rows, inbox, notes } = named;
  return JSON.stringify({ ...named, rows: byName(rows), inbox: byName(inbox), notes: byName(notes), alive });
}

/** The id of a worker, wherever it stands: no other number is as large. */
const ID = /70\d\d/g;

function byName<T extends { readonly name: string }>(rows: readonly T[]): T[] {
  return rows.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

function sorted(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).sort(([a], [b]) => (a < b ? -1 : 1)));
}
