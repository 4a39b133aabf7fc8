// Explores every order of the requests of producers and workers of one shard, with crashes, lost and doubled answers, and live workers
// that are declared dead. Every decision is made by the functions of the library, and every write is one of their changes.
import { applied, type Change, type Fields, isApplied } from '../../../../src/engine/dynamodb/index.ts';
import { claimDecided, type SeenPiece } from '../../../../src/queue/dynamodb/heads/claim.ts';
import {
  added,
  backName,
  bandsWithWork,
  F,
  isQuiet,
  numbersTaken,
  readHead,
  rescued,
  type ShardClaim,
  type ShardHead,
  settledFrom,
  writeClaim,
} from '../../../../src/queue/dynamodb/heads/head.ts';
import {
  type FilledGap,
  type KeyHead,
  readKeyHead,
  type TakeWish,
  taking,
} from '../../../../src/queue/dynamodb/heads/key-head.ts';
import { type KeyOutcome, keySettled } from '../../../../src/queue/dynamodb/heads/key-settling.ts';
import { JOBS } from '../../../../src/queue/dynamodb/heads/place.ts';
import { isIn, POKE, plain, type Span } from '../../../../src/queue/dynamodb/heads/spans.ts';
import type { Protocol, Step } from '../../../support/history/explore.ts';
import { IDLE, isAllPruned, type Pruner, pruneSteps } from './prune-steps.ts';

export interface QueueModelOptions {
  /** One job each, with the key or without. */
  readonly producers: readonly (string | null)[];
  readonly workers: number;
  readonly crashes?: number;
  /** How many answers may be lost after the request was carried out. */
  readonly losses?: number;
  /** How many writes may be carried out once more, at any later time. */
  readonly doubles?: number;
  /** How many live workers may be declared dead. */
  readonly suspicions?: number;
  /** How many attempts may fail, and are retried later. */
  readonly failures?: number;
  /** How often a number may be taken for that of a dead producer. */
  readonly voids?: number;
  /** Whether the job of each producer rests until younger ones of its kind can come no more: a while for each producer. */
  readonly rests?: readonly boolean[];
  /** Jobs that are over are removed, and the heads of their keys with the last one. */
  readonly isPruned?: boolean;
  readonly plant?: Plant;
}

/** Bugs to be found. */
export type Plant =
  | 'claims expect nothing'
  | 'settlements expect nothing'
  | 'a held key is not marked by a poke'
  | 'the poke of a retry is over'
  | 'the poke comes before the job of the key'
  | 'a job that comes late is taken for over'
  | 'missing pieces are not noted'
  | 'gaps are not noted'
  | 'a taker forgets pokes'
  | 'an old claim takes a key'
  | 'the living are rescued without a sign'
  | 'an empty piece replaces what is there'
  | 'the poke of those that rest is over'
  | 'a claim that was given back still holds its key'
  | 'the epoch of a key begins anew'
  | 'the version of a key begins anew'
  | 'heads of keys go first'
  | 'heads of keys go whatever has changed';

interface Producer {
  readonly at: 'begin' | 'numbered' | 'rowed' | 'revived' | 'done';
  readonly piece: number;
  /** Producers of the same key that were answered before it began. */
  readonly after: readonly number[];
  readonly isDead: boolean;
}

interface Chain {
  readonly key: string;
  readonly epoch: number;
  readonly jobs: readonly number[];
  readonly poke: Span;
}

type At = 'rest' | 'claim' | 'next' | 'take' | 'run' | 'settle' | 'settle key' | 'rescue';

export interface Worker {
  readonly id: number;
  readonly at: At;
  readonly isDead: boolean;
  readonly claim: ShardClaim | null;
  readonly todo: readonly Span[];
  /** The write that it is about to make, or repeats. */
  readonly request: Write | null;
  readonly running: number | null;
  readonly chain: Chain | null;
  /** How far its claim has found the line claimed, and the pieces before that were missing. */
  readonly frontier: number;
  readonly missing: readonly number[];
  /** The claims that there were then, besides its own. */
  readonly claims: readonly { readonly token: number; readonly pieces: readonly number[] }[];
  /** It was declared dead and has claimed since. */
  readonly isTired: boolean;
}

/** One write: to the head of the shard, or to that of a key. */
export interface Write {
  readonly row: string;
  readonly change: Change;
  /** It is carried out only while the head of the shard has this claim. */
  readonly claim?: ShardClaim;
  /** The producers whose jobs are over when it is carried out. */
  readonly over: readonly number[];
  /** The worker that has chosen: what it does next. */
  readonly next: Partial<Worker>;
}

export interface QueueState {
  readonly rows: Readonly<Record<string, Fields>>;
  readonly pieces: Readonly<Record<number, { readonly n: number; readonly producer: number }>>;
  /** The jobs of each key, by the row of the key. */
  readonly later: Readonly<Record<string, readonly number[]>>;
  readonly alive: readonly number[];
  readonly producers: readonly Producer[];
  readonly workers: readonly Worker[];
  /** How often each job was settled as over. */
  readonly over: readonly number[];
  /** Jobs with a record that they are over, which is written before they are settled: by whom, does not matter. */
  readonly records: readonly number[];
  readonly flying: readonly Write[];
  readonly now: number;
  readonly pruner: Pruner | null;
  /** The greatest epoch that a worker was given of each key. */
  readonly given: Readonly<Record<string, { readonly epoch: number }>>;
  readonly left: Readonly<Record<'crashes' | 'losses' | 'doubles' | 'suspicions' | 'failures' | 'voids', number>>;
  readonly problem?: string;
}

export const HEAD = 'head';
/** Instead of the number of a producer that has not begun yet. */
const UNBORN = -1;
const LIMIT = 4;
const CHAIN = 2;

export function queueModel(options: QueueModelOptions): Protocol<QueueState> {
  const { crashes = 0, losses = 0, doubles = 0, suspicions = 0, failures = 0, voids = 0 } = options;
  const whiles = options.rests?.length ?? Math.min(failures, 1);
  const worker = (id: number): Worker => ({ ...RESTING, id, isDead: false, isTired: false });
  return {
    start: {
      rows: {},
      pieces: {},
      later: {},
      alive: Array.from({ length: options.workers }, (_, at) => idOf(at)),
      producers: options.producers.map(() => ({ at: 'begin', piece: UNBORN, after: [], isDead: false })),
      workers: Array.from({ length: options.workers }, (_, at) => worker(idOf(at))),
      over: options.producers.map(() => 0),
      records: [],
      flying: [],
      now: 0,
      pruner: options.isPruned === true ? IDLE : null,
      given: {},
      left: { crashes, losses, doubles, suspicions, failures, voids },
    },
    steps: (state) => [
      ...state.producers.flatMap((_, index) => producerSteps(state, index, options)),
      ...state.workers.flatMap((_, index) => workerSteps(state, index, options)),
      ...flyingSteps(state),
      ...pruneSteps(state, options.producers, options.plant),
      ...(state.now < whiles ? [{ what: 'time passes', state: { ...state, now: state.now + 1 } }] : []),
    ],
    fault: (state) => state.problem ?? faultOf(state, options),
    isOver: (state) =>
      state.producers.every(({ at, isDead }, index) => isDead || (at === 'done' && state.over[index] === 1)) &&
      state.workers.every(({ at, isDead }) => isDead || at === 'rest') &&
      isQuietButForGaps(state) &&
      (options.isPruned !== true || isAllPruned(state, doubles + suspicions === 0)),
  };
}

/** Ids are told from all other numbers by their size: see `alike.ts`. */
function idOf(worker: number): number {
  return 7001 + worker;
}

export const RESTING = {
  at: 'rest',
  claim: null,
  todo: [],
  request: null,
  running: null,
  chain: null,
  frontier: 0,
  missing: [],
  claims: [],
} as const;

/** Nothing is claimed, given back or in the line, except numbers of dead producers. */
function isQuietButForGaps(state: QueueState): boolean {
  const head = readHead(state.rows[HEAD] ?? {});
  if (head.claims.length > 0 || head.back.length > 0) return false;
  if (isQuiet(head)) return true;
  return !Object.keys(state.pieces).some((piece) => Number(piece) * JOBS >= (head.next[0] ?? 0));
}

function faultOf(state: QueueState, { producers }: QueueModelOptions): string | undefined {
  if (state.over.some((times) => times > 1)) return 'a job was settled twice';
  const believers = state.workers.filter(({ running, isDead }) => running !== null && !isDead);
  for (const [at, one] of believers.entries()) {
    for (const other of believers.slice(at + 1)) {
      const [a, b] = [one.running ?? -1, other.running ?? -1];
      const isSame = a === b || (producers[a] !== null && producers[a] === producers[b]);
      if (!isSame) continue;
      if (isValid(state, one) && isValid(state, other)) return 'two own the same job or key';
      if (state.alive.includes(one.id) && state.alive.includes(other.id)) return 'two run the same job or key';
    }
  }
  return undefined;
}

/** Whether its outcome would be written. */
function isValid(state: QueueState, { chain, claim, todo, id }: Worker): boolean {
  if (chain !== null) {
    const key = readKeyHead(state.rows[chain.key] ?? {});
    return key.epoch === chain.epoch && key.holder?.worker === id;
  }
  const [span] = todo;
  const now = readHead(state.rows[HEAD] ?? {}).claims.find(({ token }) => token === claim?.token);
  return span !== undefined && now !== undefined && isIn(now.spans, span);
}

function producerSteps(state: QueueState, index: number, options: QueueModelOptions): Step<QueueState>[] {
  const me = state.producers[index];
  if (me === undefined || me.isDead || me.at === 'done') return [];
  const key = options.producers[index] ?? null;
  const name = `producer ${index}`;
  const become = (what: string, next: Partial<Producer>, more: Partial<QueueState> = {}): Step<QueueState> => ({
    what: `${name} ${what}`,
    state: { ...state, ...more, producers: state.producers.with(index, { ...me, ...next }) },
  });
  const die: Step<QueueState>[] =
    state.left.crashes === 0 ? [] : [become('dies', { isDead: true }, spend(state, 'crashes'))];
  switch (me.at) {
    case 'begin': {
      // Producers of the same key run the same program: the first of them begins first.
      const isSecond = state.producers.some(
        (other, at) => at < index && other.piece === UNBORN && !other.isDead && options.producers[at] === key,
      );
      if (isSecond) return [];
      const before = state.rows[HEAD] ?? {};
      const rows = { ...state.rows, [HEAD]: applied(before, numbersTaken(0, 1)) ?? before };
      const piece = Number(before['q0'] ?? 0) + 1;
      const answered = state.producers.flatMap((other, at) =>
        other.at === 'done' && key !== null && options.producers[at] === key && !passes(options, index, at) ? [at] : [],
      );
      const lost = state.left.losses === 0 ? [] : [become('loses its number', {}, { rows, ...spend(state, 'losses') })];
      return [...die, ...lost, become(`takes number ${piece}`, { at: 'numbered', piece, after: answered }, { rows })];
    }
    case 'numbered': {
      if (key === null) return [...die, ...putPiece(state, index, become)];
      if (options.plant === 'the poke comes before the job of the key' && !(me.piece in state.pieces)) {
        return [...die, ...putPiece(state, index, become).map((step) => afterPlanted(step, index))];
      }
      const later = { ...state.later, [key]: [...(state.later[key] ?? []), me.piece * JOBS].sort((a, b) => a - b) };
      const at = options.plant === 'the poke comes before the job of the key' ? 'done' : 'rowed';
      return [...die, become('writes the job of its key', { at }, { later })];
    }
    case 'rowed':
      return [...die, ...putPiece(state, index, become, key)];
    case 'revived': {
      const poke: Span = { piece: me.piece, index: 0, n: 1, attempts: POKE, dueAt: 0 };
      const change = added({ name: backName(`p${index}`), spans: [poke] });
      const head = applied(state.rows[HEAD] ?? {}, change) ?? state.rows[HEAD] ?? {};
      return [...die, become('pokes its key', { at: 'done' }, { rows: { ...state.rows, [HEAD]: head } })];
    }
  }
}

/** Where the planted order of writes goes on: the job of the key is still to be written. */
function afterPlanted(step: Step<QueueState>, index: number): Step<QueueState> {
  const me = step.state.producers[index];
  if (me === undefined || me.at !== 'done') return step;
  return { ...step, state: { ...step.state, producers: step.state.producers.with(index, { ...me, at: 'numbered' }) } };
}

type Become = (what: string, next: Partial<Producer>, more?: Partial<QueueState>) => Step<QueueState>;

function putPiece(state: QueueState, index: number, become: Become, key: string | null = null): Step<QueueState>[] {
  const me = state.producers[index];
  if (me === undefined) return [];
  const there = state.pieces[me.piece];
  if (there?.producer === index) return [become('knows its piece again', { at: 'done' })];
  if (there !== undefined && key !== null) {
    // The job of the key may have been taken: it keeps its number.
    const pieces = { ...state.pieces, [me.piece]: { n: 1, producer: index } };
    return [become('replaces the empty piece', { at: 'revived' }, { pieces })];
  }
  if (there !== undefined) return [become('is refused, as it was given up', { at: 'begin', piece: 0 })];
  const pieces = { ...state.pieces, [me.piece]: { n: 1, producer: index } };
  const lost =
    state.left.losses === 0 ? [] : [become('writes its piece unheard', {}, { pieces, ...spend(state, 'losses') })];
  return [become(`writes piece ${me.piece}`, { at: 'done' }, { pieces }), ...lost];
}

function workerSteps(state: QueueState, index: number, options: QueueModelOptions): Step<QueueState>[] {
  const me = state.workers[index];
  if (me === undefined || me.isDead) return [];
  const become = (what: string, next: Partial<Worker>, more: Partial<QueueState> = {}): Step<QueueState> => ({
    what: `worker ${me.id} ${what}`,
    state: { ...state, ...more, workers: state.workers.with(index, { ...me, ...next }) },
  });
  const all: Step<QueueState>[] = [];
  const others = state.workers.filter((other, at) => at !== index && !other.isDead);
  if (state.left.crashes > 0 && others.length > 0) all.push(become('dies', { isDead: true }, spend(state, 'crashes')));
  if (!state.alive.includes(me.id)) {
    const id = me.id + 10;
    all.push(
      become(
        'learns that it was declared dead',
        { ...RESTING, id, isTired: false },
        { alive: [...state.alive, id].sort((a, b) => a - b) },
      ),
    );
  }
  if (me.request !== null) return [...all, ...writeSteps(state, me.request, me, become)];
  switch (me.at) {
    case 'rest':
      return [...all, ...restSteps(state, me, options, become)];
    case 'next':
      return [...all, ...nextSteps(state, me, options, become)];
    case 'run':
      return [...all, ...outcomeSteps(state, me, options, become)];
    case 'claim':
    case 'rescue':
    case 'take':
    case 'settle':
    case 'settle key':
      throw new Error(`worker ${me.id} is at ${me.at} without a request`);
  }
}

type BecomeWorker = (what: string, next: Partial<Worker>, more?: Partial<QueueState>) => Step<QueueState>;

/** What a worker does that has nothing: claims, judges others, rescues, gives up producers. */
function restSteps(
  state: QueueState,
  me: Worker,
  options: QueueModelOptions,
  become: BecomeWorker,
): Step<QueueState>[] {
  const head = readHead(state.rows[HEAD] ?? {});
  const all: Step<QueueState>[] = [];
  const line = piecesFrom(state, (head.next[0] ?? JOBS) / JOBS);
  const found = head.missing.flatMap((piece) => seenPiece(state, piece));
  const wish = { worker: me.id, request: `${me.id}`, limit: LIMIT, now: state.now };
  const decision = claimDecided(head, wish, { band: 0, line, found });
  // A worker that was declared dead claims at most once more before it learns this. Otherwise the states would have no end.
  if (decision !== undefined && !me.isTired) {
    const { claim } = decision;
    const planted = options.plant === 'claims expect nothing' ? { ...decision.change, expect: {} } : decision.change;
    const { m: _, ...unnoted } = planted.set;
    const change = options.plant === 'missing pieces are not noted' ? { ...planted, set: unnoted } : planted;
    const next: Partial<Worker> =
      claim.spans.length === 0
        ? RESTING
        : { at: 'next', claim, todo: claim.spans, request: null, ...lineAfter(head, decision.change) };
    const request: Write = { row: HEAD, change, over: [], next };
    all.push(become('decides on a claim', { at: 'claim', request, isTired: !state.alive.includes(me.id) }));
  }
  for (const claim of head.claims) {
    const isBlind = options.plant === 'the living are rescued without a sign' && claim.worker !== me.id;
    if (!state.alive.includes(claim.worker) || isBlind) {
      const request: Write = { row: HEAD, change: rescued(claim, true), over: [], next: RESTING };
      all.push(become(`decides to rescue claim ${claim.token}`, { at: 'rescue', request }));
      continue;
    }
    const owner = state.workers.find(({ id }) => id === claim.worker);
    if (owner?.id === me.id) {
      const request: Write = { row: HEAD, change: rescued(claim, false), over: [], next: RESTING };
      all.push(
        become(`decides to give back claim ${claim.token}, of which it does not know`, { at: 'rescue', request }),
      );
    }
    if (owner === undefined || owner.id === me.id) continue;
    if (!owner.isDead && state.left.suspicions === 0) continue;
    const alive = state.alive.filter((id) => id !== claim.worker);
    const cost = owner.isDead ? {} : spend(state, 'suspicions');
    all.push(become(`declares worker ${claim.worker} dead`, {}, { alive, ...cost }));
  }
  const numbers = [...head.missing, ...gapsAtTheEnd(state)];
  if (state.left.voids > 0) {
    for (const piece of numbers) {
      if (piece in state.pieces && options.plant !== 'an empty piece replaces what is there') continue;
      if (state.pieces[piece]?.n === 0) continue;
      const pieces = { ...state.pieces, [piece]: { n: 0, producer: -1 } };
      all.push(become(`gives up the producer of ${piece}`, {}, { pieces, ...spend(state, 'voids') }));
    }
  }
  return all;
}

function lineAfter(
  { next, missing, claims }: ShardHead,
  { set }: Change,
): Pick<Worker, 'frontier' | 'missing' | 'claims'> {
  const { s0 = next[0] ?? JOBS, m } = set;
  const then = claims.map(({ token, spans }) => ({ token, pieces: spans.map(({ piece }) => piece) }));
  return { frontier: Number(s0), missing: m === undefined ? missing : JSON.parse(String(m ?? '[]')), claims: then };
}

function gapsAtTheEnd(state: QueueState): number[] {
  const head = readHead(state.rows[HEAD] ?? {});
  if (!bandsWithWork(head).includes(0)) return [];
  const gaps: number[] = [];
  for (let piece = Math.floor((head.next[0] ?? JOBS) / JOBS); piece <= (head.last[0] ?? 0); piece += 1) {
    if (!(piece in state.pieces)) gaps.push(piece);
  }
  return gaps;
}

function piecesFrom(state: QueueState, first: number): SeenPiece[] {
  return Object.keys(state.pieces)
    .map(Number)
    .sort((a, b) => a - b)
    .filter((piece) => piece >= Math.floor(first))
    .flatMap((piece) => seenPiece(state, piece));
}

function seenPiece(state: QueueState, piece: number): SeenPiece[] {
  const there = state.pieces[piece];
  return there === undefined ? [] : [{ piece, n: there.n, isDelayed: false }];
}

/** A write is carried out, or repeated; its answer arrives or is lost; a copy of it may stay under way. */
function writeSteps(state: QueueState, request: Write, me: Worker, become: BecomeWorker): Step<QueueState>[] {
  const before = state.rows[request.row] ?? {};
  const after = carriedOut(state, request);
  if (after === undefined) {
    // A repetition is refused because the first one was carried out: the row tells.
    if (wasCarriedOut(before, request, me)) return [become('knows its write again', request.next)];
    if (request.row === HEAD) return [become('is refused by the head', RESTING)];
    if (me.at === 'take') return [become('is refused by the key', { at: 'next', request: null })];
    return retriedOnKey(state, request, me, become);
  }
  const done: Partial<QueueState> = {
    rows: { ...state.rows, [request.row]: after },
    over: counted(state, request),
    ...givenBy(state, me, request),
  };
  const what = `writes ${me.at}`;
  // Its lease is over by its own clock: it begins nothing.
  if (isTakenAnew(before, request, me) && !state.alive.includes(me.id))
    return [become(`${what}, too late`, RESTING, done)];
  const steps = [become(what, request.next, done)];
  if (state.left.losses > 0) steps.push(become(`${what}, unheard`, {}, { ...done, ...spend(state, 'losses') }));
  if (state.left.losses > 0 && me.at === 'take') {
    steps.push(become(`${what}, and cannot read its claim`, RESTING, { ...done, ...spend(state, 'losses') }));
  }
  if (state.left.doubles > 0) {
    const flying = { ...done, flying: [...state.flying, request], ...spend(state, 'doubles') };
    steps.push(become(`${what}, and a copy stays under way`, request.next, flying));
  }
  return steps;
}

/** It takes a key, or tells others about it, by the first change of a head. */
function isTakenAnew({ v }: Fields, { row }: Write, { at }: Worker): boolean {
  return row !== HEAD && at === 'take' && v === undefined;
}

/** A living worker is given a key: its token is greater than all before. */
function givenBy(state: QueueState, me: Worker, { next }: Write): Partial<QueueState> {
  const { chain } = next;
  if (me.at !== 'take' || chain === null || chain === undefined || !state.alive.includes(me.id)) return {};
  const isFallen = chain.epoch <= (state.given[chain.key]?.epoch ?? 0);
  const given = { ...state.given, [chain.key]: { epoch: chain.epoch } };
  return { given, ...(isFallen && { problem: 'the token of a key fell' }) };
}

/** The row after a write; undefined when its condition does not hold. */
export function carriedOut({ rows }: QueueState, { row, change, claim }: Write): Fields | undefined {
  const isThere = claim === undefined || rows[HEAD]?.[F.claim(claim.token)] === writeClaim(claim);
  return isThere ? applied(rows[row] ?? {}, change) : undefined;
}

export function wasCarriedOut(before: Fields, { row, change, next }: Write, me: Pick<Worker, 'at' | 'claim'>): boolean {
  if (row !== HEAD || me.at === 'rescue') return isApplied(before, change);
  const { claims } = readHead(before);
  if (me.at === 'claim')
    return claims.some(({ token, worker }) => token === next.claim?.token && worker === next.claim.worker);
  const now = claims.find(({ token }) => token === me.claim?.token);
  return now !== undefined && JSON.stringify(now) === JSON.stringify(next.claim);
}

/** The outcome of a job of a key meets a change of its row: it decides anew, or has lost the key. */
function retriedOnKey(state: QueueState, request: Write, me: Worker, become: BecomeWorker): Step<QueueState>[] {
  const { chain } = me;
  if (chain === null) return [];
  const key = readKeyHead(state.rows[request.row] ?? {});
  if (key.epoch !== chain.epoch || key.holder === undefined) return [become('has lost its key', RESTING)];
  return [become('decides anew on the key', { at: 'run', request: null, running: producerOf(state, chain.jobs[0]) })];
}

function counted(state: QueueState, { over }: Write): readonly number[] {
  return state.over.map((times, producer) => times + over.filter((each) => each === producer).length);
}

function flyingSteps(state: QueueState): Step<QueueState>[] {
  return state.flying.map((request, index) => {
    const flying = state.flying.toSpliced(index, 1);
    const after = carriedOut(state, request);
    const what = `a copy arrives: ${JSON.stringify(request.change)}`;
    if (after === undefined) return { what, state: { ...state, flying } };
    const rows = { ...state.rows, [request.row]: after };
    return { what, state: { ...state, rows, flying, over: counted(state, request) } };
  });
}

/** The next job of its claim: it begins it, or follows its poke. */
function nextSteps(
  state: QueueState,
  me: Worker,
  options: QueueModelOptions,
  become: BecomeWorker,
): Step<QueueState>[] {
  const [span] = me.todo;
  if (span === undefined || me.claim === null) return [become('has finished its claim', RESTING)];
  const producer = state.pieces[span.piece]?.producer ?? -1;
  const key = options.producers[producer] ?? null;
  if (key === null) return [begun(state, { ...me, running: producer }, become)];
  const head = readKeyHead(state.rows[key] ?? {});
  const { id, claim } = me;
  const isLateOver = options.plant === 'a job that comes late is taken for over';
  const found = taking(options.plant === 'an old claim takes a key' ? { ...head, token: 0 } : head, {
    worker: id,
    token: claim.token,
    poke: span.piece * JOBS,
    isPokeOver: state.records.includes(producer) || isLateOver,
    later: (state.later[key] ?? []).filter((job) => job > head.upto && job < me.frontier),
    missing: options.plant === 'gaps are not noted' ? [] : me.missing,
    filled: isLateOver ? [] : head.gaps.flatMap((piece) => filledGap(state, key, piece)),
    resting: restingIn(state, key, head, me, options),
    limit: CHAIN,
    isMore: false,
    now: state.now,
    isLost: (other) => !state.alive.includes(other),
    claims: claimsThen(me, head, options.plant),
    hasRow: (job) => state.later[key]?.includes(job) === true,
  });
  const isOver = (backUntil: number | undefined): Write => settledSpan(me, claim, span, [], backUntil, POKE);
  if (found.kind === 'rests') {
    const until = options.plant === 'the poke of those that rest is over' ? undefined : found.backUntil;
    const next: Partial<Worker> = { at: 'settle', request: isOver(until) };
    return [
      become('answers for those that rest', {
        at: 'take',
        request: { row: key, change: found.change, over: [], next, claim },
      }),
    ];
  }
  if (found.kind === 'nothing') {
    const until = options.plant === 'the poke of a retry is over' ? undefined : found.backUntil;
    return [become('finds nothing to do for the key', { at: 'settle', request: isOver(until) })];
  }
  if (found.kind === 'held') {
    if (found.change === undefined || options.plant === 'a held key is not marked by a poke') {
      return [become('finds the key held', { at: 'settle', request: isOver(undefined) })];
    }
    const next: Partial<Worker> = { at: 'settle', request: isOver(undefined) };
    return [
      become('tells the holder of its key', {
        at: 'take',
        request: { row: key, change: found.change, over: [], next },
      }),
    ];
  }
  const planted = plantedTake(head, found, options.plant);
  const { m: _, ...untold } = planted.change.set;
  const change =
    options.plant === 'a taker forgets pokes' ? { ...planted.change, set: { ...untold, m: null } } : planted.change;
  const chain: Chain = { key, epoch: planted.epoch, jobs: found.jobs.map((job) => job.id), poke: span };
  const next: Partial<Worker> = { at: 'run', request: null, chain, running: producerOf(state, chain.jobs[0]) };
  return [become('takes the key', { at: 'take', request: { row: key, change, over: [], next } })];
}

function claimsThen({ claims }: Worker, { holder, guardian }: KeyHead, plant: Plant | undefined): TakeWish['claims'] {
  const held = { token: holder?.token ?? 0, spans: [plain({ piece: guardian / JOBS, index: 0, n: 1 })] };
  if (plant === 'a claim that was given back still holds its key') return [held];
  return claims.map(({ token, pieces }) => ({ token, spans: pieces.map((piece) => plain({ piece, index: 0, n: 1 })) }));
}

function plantedTake(
  head: KeyHead,
  { change, epoch }: { readonly change: Change; readonly epoch: number },
  plant: Plant | undefined,
): { readonly change: Change; readonly epoch: number } {
  if (plant === 'the epoch of a key begins anew')
    return { change: { ...change, set: { ...change.set, e: head.epoch + 1 } }, epoch: head.epoch + 1 };
  if (plant === 'the version of a key begins anew')
    return { change: { ...change, set: { ...change.set, v: head.version + 1 } }, epoch };
  return { change, epoch };
}

/** Jobs of other kinds do not wait for those that rest. */
function passes({ rests = [] }: QueueModelOptions, job: number, other: number): boolean {
  return rests[other] === true && rests[job] !== true;
}

/** All of them rest as long as the youngest does. */
function restingIn(
  state: QueueState,
  key: string,
  head: KeyHead,
  { frontier }: Worker,
  { rests = [] }: QueueModelOptions,
): Map<number, number> {
  const left = head.left.filter(({ attempt, isTaken }) => attempt === 0 && !isTaken).map(({ id }) => id);
  const later = (state.later[key] ?? []).filter((job) => job > head.upto && job < frontier);
  const some = [...left, ...later].filter((job) => rests[producerOf(state, job)] === true);
  const until = Math.max(0, ...some.map((job) => producerOf(state, job) + 1));
  return new Map(until > state.now ? some.map((job) => [job, until]) : []);
}

/** A piece that is there has its job of the key before. */
function filledGap(state: QueueState, key: string, piece: number): FilledGap[] {
  const job = piece * JOBS;
  if (state.later[key]?.includes(job) !== true) return (state.pieces[piece]?.n ?? 0) > 0 ? [{ piece, jobs: [] }] : [];
  return [{ piece, jobs: state.records.includes(producerOf(state, job)) ? [] : [job] }];
}

function producerOf(state: QueueState, job: number | undefined): number {
  const piece = Math.floor((job ?? 0) / JOBS);
  const there = state.pieces[piece];
  // Its piece may not be there yet, or be empty: the row of the key was first.
  if (there !== undefined && there.n > 0) return there.producer;
  return state.producers.findIndex((producer) => producer.piece === piece);
}

/** The handler runs: no job of its key from before may be outstanding. */
function begun(state: QueueState, me: Worker, become: BecomeWorker): Step<QueueState> {
  return become('begins its job', { at: 'run', request: null, running: me.running ?? -1 }, orderProblem(state, me));
}

function orderProblem(state: QueueState, me: Worker): Partial<QueueState> {
  const after = state.producers[me.running ?? -1]?.after ?? [];
  const isEarly = after.some((before) => state.over[before] === 0);
  return isEarly ? { problem: 'a job of a key began before an earlier one was over' } : {};
}

function outcomeSteps(
  state: QueueState,
  me: Worker,
  options: QueueModelOptions,
  become: BecomeWorker,
): Step<QueueState>[] {
  const outcomes: ('over' | 'retry')[] = state.left.failures > 0 ? ['over', 'retry'] : ['over'];
  const problem = me.chain === null ? {} : orderProblem(state, me);
  return outcomes.flatMap((to) => {
    const records = [...state.records, me.running ?? -1].sort((a, b) => a - b);
    const cost = to === 'retry' ? spend(state, 'failures') : { records };
    const what = to === 'retry' ? 'fails' : 'is done';
    if (me.chain !== null) {
      const next = keyOutcome(state, me, me.chain, to, options);
      return next === undefined
        ? [become('has lost its key', RESTING)]
        : [become(what, { ...next, running: null }, { ...cost, ...problem })];
    }
    const [span] = me.todo;
    if (span === undefined || me.claim === null) return [];
    const over = to === 'over' ? [me.running ?? -1] : [];
    const request = settledSpan(me, me.claim, span, over, to === 'retry' ? 1 : undefined, span.attempts + 1);
    const { expect: _, ...unconditional } = request.change;
    const planted =
      options.plant === 'settlements expect nothing'
        ? { ...request, change: { ...unconditional, expect: {} } }
        : request;
    return [become(what, { at: 'settle', request: planted, running: null }, cost)];
  });
}

/** The change that takes a span out of the claim of a worker, or lets it go back. */
function settledSpan(
  me: Worker,
  claim: ShardClaim,
  span: Span,
  over: readonly number[],
  backUntil: number | undefined,
  attempts: number,
): Write {
  const back =
    backUntil === undefined
      ? undefined
      : { name: backName(claim.token, `.${me.todo.length}`), spans: [{ ...span, n: 1, attempts, dueAt: backUntil }] };
  const { change, left } = settledFrom(claim, ({ piece }) => piece === span.piece, back);
  const next: Partial<Worker> =
    left === undefined
      ? RESTING
      : { at: 'next', claim: left, todo: me.todo.slice(1), request: null, running: null, chain: null };
  return { row: HEAD, change, over, next };
}

function keyOutcome(
  state: QueueState,
  me: Worker,
  chain: Chain,
  to: 'over' | 'retry',
  options: QueueModelOptions,
): Partial<Worker> | undefined {
  const [job = 0, ...rest] = chain.jobs;
  const isLast = rest.length === 0 || to === 'retry';
  const outcomes: KeyOutcome[] = [{ id: job, to, dueAt: to === 'retry' ? 1 : 0 }];
  const settled = keySettled(readKeyHead(state.rows[chain.key] ?? {}), chain.epoch, outcomes, isLast);
  if (settled === undefined || me.claim === null) return undefined;
  const isLeft = readKeyHead(state.rows[chain.key] ?? {}).left.some(({ id }) => id === job);
  const over = to === 'over' && isLeft ? [me.running ?? -1] : [];
  if (!isLast) {
    const shorter = { ...chain, jobs: rest };
    const next: Partial<Worker> = { at: 'run', request: null, chain: shorter, running: producerOf(state, rest[0]) };
    return { at: 'settle key', request: { row: chain.key, change: settled.change, over, next } };
  }
  const isPlanted = options.plant === 'the poke of a retry is over' && to === 'retry';
  const settle = settledSpan(me, me.claim, chain.poke, [], isPlanted ? undefined : settled.backUntil, POKE);
  const next: Partial<Worker> = { at: 'settle', request: settle, running: null };
  return { at: 'settle key', request: { row: chain.key, change: settled.change, over, next } };
}

function spend(state: QueueState, what: keyof QueueState['left']): Pick<QueueState, 'left'> {
  return { left: { ...state.left, [what]: state.left[what] - 1 } };
}
