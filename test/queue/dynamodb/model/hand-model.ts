// Explores every order of the requests of people who cancel, retry and change a job, of enqueues of the same unique value, of the removal of old
// jobs, and of workers. Every decision is made by the functions of the library. A transaction is one step, which the service carries out once.
import { applied, type Change, type Fields } from '../../../../src/engine/dynamodb/index.ts';
import { backInHead, cancelledInHead, changedInHead } from '../../../../src/queue/dynamodb/heads/by-hand.ts';
import { claimDecided } from '../../../../src/queue/dynamodb/heads/claim.ts';
import {
  added,
  backName,
  numbersTaken,
  readHead,
  rescued,
  settledFrom,
} from '../../../../src/queue/dynamodb/heads/head.ts';
import { jobAdded, keyCancelled, keyChanged } from '../../../../src/queue/dynamodb/heads/key-changes.ts';
import { type KeyHead, keyStandingOf, readKeyHead, taking } from '../../../../src/queue/dynamodb/heads/key-head.ts';
import { keySettled } from '../../../../src/queue/dynamodb/heads/key-settling.ts';
import { JOBS } from '../../../../src/queue/dynamodb/heads/place.ts';
import { POKE } from '../../../../src/queue/dynamodb/heads/spans.ts';
import { standingIn, statusOf, tokenByHand } from '../../../../src/queue/dynamodb/heads/status.ts';
import { isTheOne, jobIn, placeTaken } from '../../../../src/queue/dynamodb/heads/unique.ts';
import type { JobStatus } from '../../../../src/queue/job.ts';
import type { Protocol, Step } from '../../../support/history/explore.ts';

export interface HandModelOptions {
  /** What people do, each once; all of it is about the first job. */
  readonly calls: readonly Call[];
  readonly workers: number;
  /** The jobs are of one key. */
  readonly isKeyed?: boolean;
  /** Jobs that are there in the beginning. */
  readonly jobs?: number;
  /** The kind is unique by its payload, or jobs are. */
  readonly unique?: 'outstanding' | 'waiting' | 'ever';
  readonly failures?: number;
  readonly crashes?: number;
  readonly losses?: number;
  readonly doubles?: number;
  readonly plant?: HandPlant;
}

/** `enqueue`: another job of the same value. `remove`: the history of the job is over. */
export type Call = 'cancel' | 'retry' | 'update' | 'enqueue' | 'remove';

/** Bugs to be found. */
export type HandPlant =
  | 'a job is taken out without a record'
  | 'a record by hand counts more than what was read'
  | 'a change by hand leaves the head alone'
  | 'a retry expects no mark'
  | 'a retry leaves its row alone'
  | 'a retry forgets the value'
  | 'an enqueue expects nothing of the value'
  | 'the job is judged before the value is read'
  | 'a job that a worker has had is taken out'
  | 'a running job is taken out';

interface Entry {
  readonly to: 'complete' | 'retry' | 'release' | 'error' | 'cancelled';
  readonly token: number;
  /** A retry by hand has followed it. */
  readonly isMarked: boolean;
}

interface Job {
  /** Its row: the payload, and how often people have changed it; undefined: it was removed. */
  readonly row: { readonly payload: number; readonly changes: number } | null;
  readonly records: readonly Entry[];
  /** What is true, whatever the rows say. */
  readonly ends: readonly JobStatus[];
  readonly retries: number;
}

interface JobView {
  readonly row?: Job['row'];
  readonly head?: Fields;
  readonly key?: Fields;
  readonly records?: readonly Entry[];
  readonly place?: Fields;
}

interface Person {
  readonly at:
    | 'begin'
    | 'place'
    | 'row'
    | 'head'
    | 'key'
    | 'records'
    | 'decide'
    | 'record'
    | 'take out'
    | 'write'
    | 'remove'
    | 'done';
  readonly job: number;
  readonly seen: JobView;
  readonly todo: Write | null;
  readonly answer: string | null;
}

interface Worker {
  readonly id: number;
  readonly at: 'rest' | 'claims' | 'follows' | 'takes' | 'runs' | 'has recorded' | 'lets go' | 'dead';
  readonly todo: Write | null;
  readonly claim: ReturnType<typeof readHead>['claims'][number] | null;
  readonly frontier: number;
  /** The claims that there were then, besides its own. */
  readonly claims: readonly NonNullable<Worker['claim']>[];
  readonly epoch: number;
  readonly job: number;
  readonly payload: number;
  readonly outcome: Entry['to'] | null;
}

interface Write {
  readonly row: 'head' | 'key';
  readonly change: Change;
  readonly next: 'lets go' | 'rest' | 'follows' | 'runs' | 'done';
  /** The poke goes back after it. */
  readonly back?: number | undefined;
  /** Jobs that have ended so when it is carried out. */
  readonly ends?: { readonly job: number; readonly as: JobStatus };
}

export interface HandState {
  readonly head: Fields;
  readonly key: Fields;
  readonly place: Fields;
  readonly jobs: readonly Job[];
  readonly people: readonly Person[];
  readonly workers: readonly Worker[];
  readonly alive: readonly number[];
  readonly wished: readonly number[];
  readonly flying: readonly Write[];
  readonly left: Readonly<Record<'failures' | 'crashes' | 'losses' | 'doubles', number>>;
  readonly problem?: string;
}

const RULES = {
  outstanding: { by: 'payload', while: 'outstanding' },
  waiting: { by: 'payload', while: 'waiting' },
  ever: { by: 'payload', while: 'ever' },
} as const;

const NEW: Job = { row: { payload: 1, changes: 0 }, records: [], ends: [], retries: 0 };
const RESTING = {
  at: 'rest',
  todo: null,
  claim: null,
  frontier: 0,
  claims: [],
  epoch: 0,
  job: -1,
  payload: 0,
  outcome: null,
} as const;

function idOf(job: number): number {
  return (job + 1) * JOBS;
}

export function handModel(options: HandModelOptions): Protocol<HandState> {
  const { failures = 0, crashes = 0, losses = 0, doubles = 0, jobs = 1, unique } = options;
  const ids = Array.from({ length: options.workers }, (_, at) => 7001 + at);
  return {
    start: {
      head: applied({}, numbersTaken(0, jobs)) ?? {},
      key: {},
      place: unique === undefined ? {} : (applied({}, placeTaken({}, 0, 0)) ?? {}),
      jobs: Array.from({ length: jobs }, () => NEW),
      people: options.calls.map(() => ({ at: 'begin', job: 0, seen: {}, todo: null, answer: null })),
      workers: ids.map((id) => ({ ...RESTING, id })),
      alive: ids,
      wished: [],
      flying: [],
      left: { failures, crashes, losses, doubles },
    },
    steps: (state) => [
      ...state.people.flatMap((_, index) => personSteps(state, index, options)),
      ...state.workers.flatMap((_, index) => workerSteps(state, index, options)),
      ...state.flying.map((write, index) => ({
        what: `a copy arrives: ${JSON.stringify(write.change)}`,
        state: { ...state, ...carriedOut(state, write), flying: state.flying.toSpliced(index, 1) },
      })),
    ],
    fault: (state) => state.problem ?? faultOf(state, options),
    isOver: (state) =>
      state.people.every(({ at }) => at === 'done') &&
      state.workers.every(({ at }) => at === 'rest' || at === 'dead') &&
      state.jobs.every((_, job) => !isOutstanding(state, job, options)),
    canonical: (state) => {
      const flying = state.flying.filter((write) => carriedOut(state, write) !== undefined);
      return { ...state, flying, head: sorted(state.head), key: sorted(state.key) };
    },
  };
}

function sorted(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function faultOf(state: HandState, options: HandModelOptions): string | undefined {
  const running = state.workers.filter(({ at, id }) => at === 'runs' && state.alive.includes(id)).map(({ job }) => job);
  if (running.length > new Set(running).size) return 'two run one job';
  for (const [job, { ends, retries, row }] of state.jobs.entries()) {
    if (ends.length > retries + 1) return 'a job has ended twice';
    const isOver = !isOutstanding(state, job, options);
    if (row !== null && isOver && ends.length === retries) return 'a job is over, and has not ended';
    const isStill =
      state.workers.every(({ at }) => at === 'rest' || at === 'dead') && state.people.every(({ at }) => at === 'done');
    if (row !== null && isStill && isOver && statusIn(job, truth(state, job), options) !== ends.at(-1)) {
      return 'it is told wrongly how a job has ended';
    }
    if (row === null && !isOver) return 'a job that is outstanding was removed';
  }
  const alive = state.jobs.filter((_, job) => isOutstanding(state, job, options)).length;
  if (options.unique === 'outstanding' && alive > 1) return 'two jobs of one value are outstanding';
  if (options.unique === 'ever' && state.jobs.length > 1) return 'there are two jobs of one value';
  return undefined;
}

function truth({ head, key, jobs }: HandState, job: number): JobView {
  return { head, key, records: jobs[job]?.records ?? [], row: jobs[job]?.row ?? null };
}

function isOutstanding(state: HandState, job: number, { isKeyed = false }: HandModelOptions): boolean {
  if (state.jobs[job]?.row === null && !isKeyed) return standingIn(readHead(state.head), spotOf(job), 0) !== 'gone';
  if (isKeyed) {
    const standing = keyStandingOf(readKeyHead(state.key), idOf(job));
    return standing !== 'over' && standing !== 'cancelled' && !(standing === 'later' && state.jobs[job]?.row === null);
  }
  const standing = standingIn(readHead(state.head), spotOf(job), 0);
  return standing !== 'gone' && standing !== 'cancelled';
}

function spotOf(job: number): { readonly piece: number; readonly index: number } {
  return { piece: job + 1, index: 0 };
}

function inOrder(records: readonly Entry[]): Entry[] {
  return records.toSorted((a, b) => a.token - b.token);
}

function statusIn(
  job: number,
  { head = {}, key = {}, records = [] }: JobView,
  { isKeyed = false }: HandModelOptions,
): JobStatus {
  return statusOf({
    standing: standingIn(readHead(head), spotOf(job), 0),
    keyStanding: isKeyed ? keyStandingOf(readKeyHead(key), idOf(job)) : undefined,
    isDelayed: false,
    records: inOrder(records),
  });
}

/** @returns undefined when the condition does not hold */
function carriedOut(state: HandState, { row, change, ends }: Write): Partial<HandState> | undefined {
  const after = applied(state[row], change);
  if (after === undefined) return undefined;
  const ended = (job: Job): Job => ({ ...job, ends: [...job.ends, ends?.as ?? 'complete'] });
  const jobs = ends === undefined ? state.jobs : state.jobs.map((job, at) => (at === ends.job ? ended(job) : job));
  return { [row]: after, jobs };
}

function spend(state: HandState, what: keyof HandState['left']): Pick<HandState, 'left'> {
  return { left: { ...state.left, [what]: state.left[what] - 1 } };
}

type Become<T> = (what: string, next: Partial<T>, more?: Partial<HandState>) => Step<HandState>;

/** It is carried out, or refused; its answer may be lost, and then it is sent again; a copy may stay under way. */
function writeSteps<T>(
  state: HandState,
  write: Write,
  become: Become<T>,
  next: Partial<T>,
  refused: () => Step<HandState>,
): Step<HandState>[] {
  const done = carriedOut(state, write);
  if (done === undefined) return [refused()];
  const what = `writes ${JSON.stringify(write.change)}`;
  const all = [become(what, next, done)];
  if (state.left.losses > 0) all.push(become(`${what}, unheard`, {}, { ...done, ...spend(state, 'losses') }));
  if (state.left.doubles > 0) {
    all.push(become(`${what}, twice`, next, { ...done, flying: [...state.flying, write], ...spend(state, 'doubles') }));
  }
  return all;
}

function withJob(state: HandState, job: number, next: (job: Job) => Partial<Job>): readonly Job[] {
  return state.jobs.map((one, at) => (at === job ? { ...one, ...next(one) } : one));
}

function personSteps(state: HandState, index: number, options: HandModelOptions): Step<HandState>[] {
  const me = state.people[index];
  const call = options.calls[index];
  if (me === undefined || call === undefined || me.at === 'done') return [];
  const become: Become<Person> = (what, next, more = {}) => ({
    what: `${call} ${index} ${what}`,
    state: { ...state, ...more, people: state.people.with(index, { ...me, ...next }) },
  });
  const { plant, isKeyed = false } = options;
  const reads = (what: keyof JobView, value: JobView[keyof JobView], at: Person['at']): Step<HandState>[] => [
    become(`reads the ${what}`, { at, seen: { ...me.seen, [what]: value } }),
  ];
  switch (me.at) {
    case 'begin': {
      if (call !== 'enqueue') return [become('begins', { at: 'row', seen: {} })];
      if (plant === 'the job is judged before the value is read')
        return [become('begins', { at: 'row', seen: {}, job: Number(state.place['j'] ?? 0) })];
      return reads('place', state.place, 'place');
    }
    case 'place': {
      if (call !== 'enqueue') return [];
      const there = jobIn(me.seen.place ?? {}, RULES[options.unique ?? 'outstanding'], 0);
      return there === undefined
        ? [addJob(state, me, become, options)]
        : [become('looks for its job', { at: 'row', job: there })];
    }
    case 'row':
      return reads('row', state.jobs[me.job]?.row ?? null, 'head');
    case 'head':
      return reads('head', state.head, isKeyed ? 'key' : 'records');
    case 'key':
      return reads('key', state.key, 'records');
    case 'records':
      return reads('records', state.jobs[me.job]?.records ?? [], 'decide');
    case 'decide':
      return [decided(state, me, call, become, options)];
    case 'record': {
      const isUnwritten = plant === 'a job is taken out without a record';
      const seen = seenBy(me, options);
      const last = inOrder(me.seen.records ?? []).at(-1)?.token ?? 0;
      const isMost = plant === 'a record by hand counts more than what was read';
      const token = isMost ? Math.max(seen.head.fence, last) : tokenByHand(seen);
      const entry: Entry = { to: 'cancelled', token, isMarked: false };
      const jobs = isUnwritten
        ? state.jobs
        : withJob(state, me.job, ({ records }) => ({ records: [...records, entry] }));
      return [become('writes its record', { at: 'take out' }, { jobs })];
    }
    case 'take out': {
      const change = takenOut(state, me, options);
      if (change === undefined) return [become('does not find it there any more', { at: 'begin', seen: {} })];
      const ends = { job: me.job, as: 'cancelled' } as const;
      return [become('decides', { at: 'write', todo: { row: isKeyed ? 'key' : 'head', change, next: 'done', ends } })];
    }
    case 'write': {
      if (me.todo === null) return [];
      const done = { at: 'done', todo: null, answer: 'cancelled', seen: {} } as const;
      return writeSteps(state, me.todo, become, done, () => {
        // Sent twice, and there is nothing left to do: the first request did it, or somebody else the same.
        const isMade = state.left.losses < (options.losses ?? 0) && takenOut(state, me, options) === undefined;
        return isMade ? become('counts it as made', done) : become('is refused', { at: 'take out', todo: null });
      });
    }
    case 'remove': {
      const job = state.jobs[me.job];
      const isSame = job?.row?.changes === me.seen.row?.changes;
      const jobs = isSame ? withJob(state, me.job, () => ({ row: null })) : state.jobs;
      const isIts = isSame && state.place['j'] === me.job;
      return [
        become(
          isSame ? 'removes the row' : 'leaves the row',
          { at: 'done', seen: {} },
          { jobs, ...(isIts && { place: {} }) },
        ),
      ];
    }
  }
}

function seenBy({ seen }: Person, { isKeyed = false }: HandModelOptions): Parameters<typeof tokenByHand>[0] {
  const keyHead = isKeyed ? readKeyHead(seen.key ?? {}) : undefined;
  return { head: readHead(seen.head ?? {}), keyHead, isDelayed: false };
}

function takenOut(
  state: HandState,
  { job, seen }: Person,
  { isKeyed = false, plant }: HandModelOptions,
): Change | undefined {
  const [head, key] = [readHead(state.head), readKeyHead(state.key)];
  const isMoved = plant === 'a job that a worker has had is taken out';
  if (isKeyed) return keyCancelled(key, idOf(job), isMoved ? key : readKeyHead(seen.key ?? {}));
  const claim = head.claims.find(({ spans }) => spans.some(({ piece }) => piece === job + 1));
  if (plant === 'a running job is taken out' && claim !== undefined)
    return settledFrom(claim, ({ piece }) => piece === job + 1).change;
  return cancelledInHead(head, spotOf(job), isMoved ? head : readHead(seen.head ?? {}), false);
}

function addJob(state: HandState, me: Person, become: Become<Person>, options: HandModelOptions): Step<HandState> {
  const change = placeTaken(me.seen.place ?? {}, state.jobs.length, 0);
  const isBlind = options.plant === 'an enqueue expects nothing of the value';
  const place = applied(state.place, isBlind ? { ...change, expect: {} } : change);
  if (place === undefined) return become('looks again', { at: 'begin', seen: {} });
  const head = applied(state.head, numbersTaken(0, 1)) ?? state.head;
  return become('adds a job', { at: 'done', seen: {} }, { place, head, jobs: [...state.jobs, NEW] });
}

function decided(
  state: HandState,
  me: Person,
  call: Call,
  become: Become<Person>,
  options: HandModelOptions,
): Step<HandState> {
  const { seen } = me;
  const status = seen.row === null ? undefined : statusIn(me.job, seen, options);
  const done = { at: 'done', seen: {} } as const;
  const again = { at: 'begin', seen: {} } as const;
  if (call === 'enqueue') {
    const late = { ...me, seen: { ...seen, place: seen.place ?? state.place } };
    const isOne = isTheOne(RULES[options.unique ?? 'outstanding'], status);
    return isOne ? become('finds it there', done) : addJob(state, late, become, options);
  }
  if (status === undefined) return become('finds none', done);
  switch (call) {
    case 'cancel': {
      if (status === 'in-progress')
        return become('wishes that it ends', done, { wished: [...new Set([...state.wished, me.job])] });
      return status === 'new' ? become('finds it waiting', { at: 'record' }) : become(`finds it ${status}`, done);
    }
    case 'retry': {
      if (status !== 'error' && status !== 'cancelled') return become(`finds it ${status}`, done);
      const after = broughtBack(state, me, options);
      return after === undefined ? become('is refused', again) : become('brings it back', done, after);
    }
    case 'update': {
      if (status !== 'new') return become(`finds it ${status}`, done);
      const after = changed(state, me, options);
      return after === undefined ? become('is refused', again) : become('changes it', done, after);
    }
    case 'remove': {
      const isGone =
        (options.isKeyed ?? false) ? keyStandingOf(readKeyHead(seen.key ?? {}), idOf(me.job)) === 'over' : true;
      const standing = standingIn(readHead(seen.head ?? {}), spotOf(me.job), 0);
      return standing === 'gone' && isGone
        ? become('finds it over', { at: 'remove' })
        : become('finds it outstanding', done);
    }
  }
}

/** One transaction: the place where it waits, the record that it follows, its row, and the value. */
function broughtBack(state: HandState, me: Person, options: HandModelOptions): Partial<HandState> | undefined {
  const { seen, job } = me;
  const { plant, unique } = options;
  const name = backName(`h${idOf(job)}.${seen.records?.length ?? 0}`);
  const last = inOrder(seen.records ?? []).at(-1);
  const now = state.jobs[job];
  if (last === undefined || now === undefined || (now.row === null && plant !== 'a retry leaves its row alone'))
    return undefined;
  const mark = now.records.findIndex(({ to, token }) => to === last.to && token === last.token);
  if (now.records[mark]?.isMarked === true && plant !== 'a retry expects no mark') return undefined;
  const records = now.records.map((one, at) => (at === mark ? { ...one, isMarked: true } : one));
  const places = placesBack(state, me, name, options);
  if (places === undefined) return undefined;
  const place =
    unique === undefined || plant === 'a retry forgets the value' ? state.place : placeAgain(state, me, options);
  if (place === undefined) return undefined;
  const row =
    now.row === null || plant === 'a retry leaves its row alone'
      ? now.row
      : { ...now.row, changes: now.row.changes + 1 };
  const jobs = withJob(state, job, ({ retries }) => ({ row, records, retries: retries + 1 }));
  const isOver = !isOutstanding(state, job, options) && now.ends.at(-1) !== 'complete';
  return { ...places, place, jobs, ...(!isOver && { problem: 'a job was brought back that had not failed' }) };
}

/** It is read in the same step, and the transaction expects that. */
function placeAgain(state: HandState, { job }: Person, options: HandModelOptions): Fields | undefined {
  const there = jobIn(state.place, RULES[options.unique ?? 'outstanding'], 0);
  const status = there === undefined ? undefined : statusIn(there, truth(state, there), options);
  if (options.unique === 'ever') return state.place;
  const isOther = there !== undefined && there !== job && isTheOne(RULES[options.unique ?? 'outstanding'], status);
  return isOther ? undefined : applied(state.place, placeTaken(state.place, job, 0));
}

function placesBack(
  state: HandState,
  { seen, job }: Person,
  name: string,
  { isKeyed = false }: HandModelOptions,
): Partial<HandState> | undefined {
  if (!isKeyed) {
    const back = backInHead(readHead(seen.head ?? {}), spotOf(job), name, 0);
    const head = back && applied(state.head, back.change);
    return head && { head };
  }
  const change = jobAdded(readKeyHead(seen.key ?? {}), { id: idOf(job), attempt: 0, dueAt: 0, isScheduled: false });
  const key = change && applied(state.key, change);
  const poke = { ...spotOf(job), n: 1, attempts: POKE, dueAt: 0 };
  const head = applied(state.head, added({ name, spans: [poke] }));
  return key && head && { key, head };
}

function changed(
  state: HandState,
  { seen, job }: Person,
  { isKeyed = false, plant }: HandModelOptions,
): Partial<HandState> | undefined {
  const now = state.jobs[job]?.row;
  if (now === null || now === undefined || now.changes !== seen.row?.changes) return undefined;
  const jobs = withJob(state, job, () => ({ row: { payload: now.payload + 1, changes: now.changes + 1 } }));
  const isBlind = plant === 'a change by hand leaves the head alone';
  if (isKeyed) {
    const change = keyChanged(readKeyHead(seen.key ?? {}), idOf(job), undefined);
    const key = change && applied(state.key, change);
    return isBlind ? { jobs } : key && { key, jobs };
  }
  const seenHead = readHead(seen.head ?? {});
  const standing = standingIn(seenHead, spotOf(job), 0);
  if (standing !== 'line' && standing !== 'back') return undefined;
  const change = changedInHead(seenHead, spotOf(job), standing, '', undefined);
  const head = change && applied(state.head, change);
  return isBlind ? { jobs } : head && { head, jobs };
}

function workerSteps(state: HandState, index: number, options: HandModelOptions): Step<HandState>[] {
  const me = state.workers[index];
  if (me === undefined || me.at === 'dead') return [];
  const become: Become<Worker> = (what, next, more = {}) => ({
    what: `worker ${me.id} ${what}`,
    state: { ...state, ...more, workers: state.workers.with(index, { ...me, ...next }) },
  });
  const all: Step<HandState>[] = [];
  const isLast = state.workers.every(({ at }, other) => other === index || at === 'dead');
  if (state.left.crashes > 0 && !isLast) {
    all.push(
      become(
        'dies',
        { ...RESTING, at: 'dead' },
        { alive: state.alive.filter((id) => id !== me.id), ...spend(state, 'crashes') },
      ),
    );
  }
  if (me.todo !== null) return [...all, ...workerWrites(state, me, me.todo, become, options)];
  switch (me.at) {
    case 'rest':
      return [...all, ...restSteps(state, me, become)];
    case 'follows':
      return [...all, follow(state, me, become)];
    case 'runs':
      return [...all, ...endSteps(state, me, become)];
    case 'has recorded':
      return [...all, ending(state, me, become, options)];
    case 'claims':
    case 'takes':
    case 'lets go':
      return all;
  }
}

function restSteps(state: HandState, me: Worker, become: Become<Worker>): Step<HandState>[] {
  const head = readHead(state.head);
  const dead = head.claims.filter(({ worker }) => !state.alive.includes(worker));
  if (dead.length > 0) {
    return dead.map((claim) =>
      become('rescues a claim', {}, { head: applied(state.head, rescued(claim, true)) ?? state.head }),
    );
  }
  const from = Math.floor((head.next[0] ?? JOBS) / JOBS);
  const line = state.jobs.flatMap((_, job) => (job + 1 >= from ? [{ piece: job + 1, n: 1, isDelayed: false }] : []));
  const decision = claimDecided(
    head,
    { worker: me.id, request: `${me.id}`, limit: 1, now: 0 },
    { band: 0, line, found: [] },
  );
  if (decision === undefined) return [];
  const { change, claim } = decision;
  if (claim.spans.length === 0)
    return [become('passes the line', {}, carriedOut(state, { row: 'head', change, next: 'rest' }))];
  const piece = claim.spans[0]?.piece ?? 0;
  const job = piece - 1;
  const payload = state.jobs[job]?.row?.payload ?? 0;
  const frontier = Number(change.set['s0'] ?? head.next[0] ?? JOBS);
  return [
    become('decides on a claim', {
      at: 'claims',
      claim,
      frontier,
      claims: head.claims,
      job,
      payload,
      todo: { row: 'head', change, next: 'follows' },
    }),
  ];
}

/** The job of its claim, or the key that the poke leads to. */
function follow(state: HandState, me: Worker, become: Become<Worker>): Step<HandState> {
  const { claim } = me;
  const head = readKeyHead(state.key);
  const lets = letsGo(me, undefined);
  if (claim === null) return become('has nothing', RESTING);
  const there = (job: number): boolean => state.jobs[job]?.row !== null && state.jobs[job] !== undefined;
  const records = state.jobs[me.job]?.records ?? [];
  const found = taking(head, {
    worker: me.id,
    token: claim.token,
    poke: idOf(me.job),
    isPokeOver: records.some(({ to }) => to === 'complete' || to === 'error' || to === 'cancelled'),
    later: state.jobs.flatMap((_, job) =>
      idOf(job) > head.upto && idOf(job) < me.frontier && there(job) ? [idOf(job)] : [],
    ),
    missing: [],
    filled: [],
    resting: new Map(),
    limit: 1,
    isMore: false,
    now: 0,
    claims: me.claims,
    isLost: (worker) => !state.alive.includes(worker),
    hasRow: (id) => there(id / JOBS - 1),
  });
  switch (found.kind) {
    case 'nothing':
      return become('finds nothing to do', { at: 'lets go', todo: letsGo(me, found.backUntil) });
    case 'held':
      return become('finds it held', {
        at: 'takes',
        todo: found.change === undefined ? lets : { row: 'key', change: found.change, next: 'lets go' },
      });
    case 'rests':
      return become('rests', RESTING);
    case 'taken': {
      const job = (found.jobs[0]?.id ?? 0) / JOBS - 1;
      const payload = state.jobs[job]?.row?.payload ?? 0;
      const todo: Write = { row: 'key', change: found.change, next: 'runs' };
      return become('takes the key', { at: 'takes', epoch: found.epoch, job, payload, todo });
    }
  }
}

/** Its claim lets go of its only span. */
function letsGo({ claim }: Worker, backUntil: number | undefined): Write {
  if (claim === null) throw new Error('there is no claim');
  const spans =
    backUntil === undefined ? [] : claim.spans.map((span) => ({ ...span, attempts: POKE, dueAt: backUntil }));
  return {
    row: 'head',
    change: settledFrom(claim, () => true, { name: backName(claim.token, '.1'), spans }).change,
    next: 'rest',
  };
}

function workerWrites(
  state: HandState,
  me: Worker,
  write: Write,
  become: Become<Worker>,
  options: HandModelOptions,
): Step<HandState>[] {
  const { isKeyed = false } = options;
  const begins = write.next === 'runs' || (write.next === 'follows' && !isKeyed);
  const next: Partial<Worker> = nextOf(me, write, begins);
  const stale =
    begins && me.payload !== state.jobs[me.job]?.row?.payload ? 'a job began with what was changed' : undefined;
  const checked: Become<Worker> = (what, then, more = {}) =>
    become(what, then, { ...more, ...(stale !== undefined && 'jobs' in more && { problem: stale }) });
  return writeSteps(state, write, checked, next, () => {
    const head = readHead(state.head);
    const key = readKeyHead(state.key);
    const isMine = head.claims.some(({ token, worker }) => token === me.claim?.token && worker === me.id);
    if (me.at === 'claims') return isMine ? become('knows its claim again', next) : become('is refused', RESTING);
    if (write.row === 'head') return become('finds that it has let go', RESTING);
    if (write.next === 'runs' && key.epoch === me.epoch && key.holder?.worker === me.id)
      return become('knows its key again', next);
    if (me.at === 'has recorded' || me.at === 'lets go') return refusedEnd(me, key, become);
    return become('decides anew', { at: 'follows', todo: null, job: (me.claim?.spans[0]?.piece ?? 1) - 1 });
  });
}

function nextOf(me: Worker, { next, back }: Write, begins: boolean): Partial<Worker> {
  if (begins) return { at: 'runs', todo: null };
  if (next === 'rest') return RESTING;
  if (next === 'follows') return { at: 'follows', todo: null };
  return { at: 'lets go', todo: letsGo(me, back) };
}

function refusedEnd(me: Worker, key: KeyHead, become: Become<Worker>): Step<HandState> {
  const isHeld = key.epoch === me.epoch && key.holder?.worker === me.id;
  if (isHeld) return become('decides anew on the key', { at: 'has recorded', todo: null });
  return become('has let go of the key', {
    at: 'lets go',
    todo: letsGo(me, key.epoch === me.epoch && key.left.length > 0 ? 0 : undefined),
  });
}

function endSteps(state: HandState, me: Worker, become: Become<Worker>): Step<HandState>[] {
  const isWished = state.wished.includes(me.job);
  const outcomes: Entry['to'][] = isWished ? ['complete', 'cancelled'] : ['complete'];
  if (state.left.failures > 0) outcomes.push('error', 'retry');
  return outcomes.map((to) => {
    const entry: Entry = { to, token: me.claim?.token ?? 0, isMarked: false };
    const jobs = withJob(state, me.job, ({ records }) => ({ records: [...records, entry] }));
    const cost = to === 'error' || to === 'retry' ? spend(state, 'failures') : {};
    return become(`writes the record ${to}`, { at: 'has recorded', outcome: to }, { jobs, ...cost });
  });
}

/** After its record, the head of the key or of the shard lets go of it. */
function ending(
  state: HandState,
  me: Worker,
  become: Become<Worker>,
  { isKeyed = false }: HandModelOptions,
): Step<HandState> {
  const { outcome, claim, job } = me;
  if (claim === null || outcome === null) return become('has nothing', RESTING);
  const as = outcome === 'retry' || outcome === 'release' ? undefined : outcome;
  const ends = as === undefined ? {} : { ends: { job, as } };
  if (!isKeyed) {
    const spans = as === undefined ? claim.spans.map((span) => ({ ...span, attempts: span.attempts + 1 })) : [];
    const { change } = settledFrom(claim, () => true, { name: backName(claim.token, '.1'), spans });
    return become('decides to let go', { at: 'lets go', todo: { row: 'head', change, next: 'rest', ...ends } });
  }
  const to = as === undefined ? 'retry' : 'over';
  const settled = keySettled(readKeyHead(state.key), me.epoch, [{ id: idOf(job), to, dueAt: 0 }], true);
  if (settled === undefined) return become('has lost its key', { at: 'lets go', todo: letsGo(me, undefined) });
  const write: Write = { row: 'key', change: settled.change, next: 'lets go', back: settled.backUntil, ...ends };
  return become('decides to give the key up', { at: 'has recorded', todo: write });
}
