/**
 * The head of an actor: the one row that decides. This file has its state and its moves as pure functions; it sends no requests.
 *
 * - A claim raises the epoch, and expects the epoch and the fence that it has read. So of several claims, one is carried out. A claim absorbs the
 *   inbox: it adds the rows to the semaphores and the children, and names them in the head until they are seen gone. So no row counts twice.
 * - A commit expects the epoch, the worker, and the mark of what came (`signal`, `leadsOn`). If a worker finds a wake row of an actor that runs, it sets
 *   this mark under the same condition. So either the commit sees the mark, or the mark finds the actor as the commit has left it.
 * - A rescue raises the epoch of an actor that a dead worker has claimed. If the worker had only noted that it would claim the actor, the rescue
 *   changes the fence, so that a claim under way is refused.
 *
 * Workers find an actor by the rows of its line, see `wake.ts`.
 */
import type { Change, Fields } from '../../../engine/dynamodb/index.ts';

/** The names of the fields: a letter, or a letter and a digit, which need no placeholder in a request. */
export const F = {
  epoch: 'e',
  fence: 'n',
  worker: 'w',
  wakeAt: 't',
  retryAt: 'r',
  floorAt: 'o',
  signal: 'g',
  claimedAt: 'c',
  attempt: 'a',
  visit: 'v',
  lost: 'l',
  state: 's',
  type: 'y',
  version: 'x',
  finishedAt: 'z',
  held: 'h',
  deadlineAt: 'd',
  enteredAt: 'i',
  createdAt: 'b',
  key: 'k',
  parent: 'q',
  children: 'j',
  semaphores: 'm',
  timers: 'u',
  fields: 'f',
  pausedAt: 'p',
  pages: 'p1',
  late: 'l1',
  error: 'e1',
  cause: 'c1',
  result: 'r1',
  absorbed: 'a1',
  gone: 'g1',
  committed: 'k1',
  leadsOn: 'h1',
} as const;

export interface ActorHead {
  readonly epoch: number;
  readonly fence: number;
  /** The worker of the turn that runs; 0: no turn runs. */
  readonly worker: number;
  /** When the actor is due, in ms since 1970 by the service's clock; undefined: it hibernates. */
  readonly wakeAt: number | undefined;
  /** When the actor is due again, if the running turn does not end. */
  readonly retryAt: number;
  /** After a failure: the earliest time at which a signal may wake the actor. */
  readonly floorAt: number;
  /** When a page is opened, since the actor has been in its state for too long. */
  readonly deadlineAt: number | undefined;
  /** A signal came while a turn ran, or while the actor was paused or held. */
  readonly signal: boolean;
  /** A semaphore of `always` that leads to another state was raised while the turn ran. */
  readonly leadsOn: boolean;
  readonly attempt: number;
  readonly visit: number;
  /** How many turns in a row were lost with their process. */
  readonly lost: number;
  readonly state: string;
  readonly type: number;
  readonly isFinal: boolean;
  readonly isPaused: boolean;
  readonly held: string | undefined;
  /** How many children are not final. Ends of children in the inbox are not subtracted yet. */
  readonly children: number;
  readonly semaphores: Semaphores;
  /** Names of the inbox rows that are counted in `semaphores` and `children`, and of signals that the last claim answers. */
  readonly absorbed: readonly string[];
  /** Messages that turns have read, whose rows may still exist. */
  readonly gone: readonly number[];
  /** The last epoch whose own turn was committed. */
  readonly committed: number;
  readonly fields: Fields;
}

export type Semaphores = Readonly<Record<string, number>>;

/** A row of the inbox: a raise of a semaphore, or the end of a child. */
export interface InboxRow {
  /** A name that is never used again. */
  readonly name: string;
  /** Undefined: a child has ended. */
  readonly semaphore: string | undefined;
  readonly n: number;
}

export function readHead(fields: Fields): ActorHead {
  const number = (name: string): number => Number(fields[name] ?? 0);
  const optional = (name: string): string | undefined =>
    fields[name] === undefined ? undefined : String(fields[name]);
  return {
    epoch: number(F.epoch),
    fence: number(F.fence),
    worker: number(F.worker),
    wakeAt: fields[F.wakeAt] === undefined ? undefined : Number(fields[F.wakeAt]),
    retryAt: number(F.retryAt),
    floorAt: number(F.floorAt),
    deadlineAt: fields[F.deadlineAt] === undefined ? undefined : Number(fields[F.deadlineAt]),
    signal: fields[F.signal] !== undefined,
    // It names its turn. So one that a worker of an earlier version has left behind says nothing about a later turn.
    leadsOn: number(F.worker) !== 0 && fields[F.leadsOn] !== undefined && number(F.leadsOn) === number(F.epoch),
    attempt: number(F.attempt),
    visit: number(F.visit),
    lost: number(F.lost),
    state: String(fields[F.state] ?? ''),
    type: number(F.type),
    isFinal: fields[F.finishedAt] !== undefined,
    isPaused: fields[F.pausedAt] !== undefined,
    held: optional(F.held),
    children: number(F.children),
    semaphores: JSON.parse(optional(F.semaphores) ?? '{}'),
    absorbed: JSON.parse(optional(F.absorbed) ?? '[]'),
    gone: JSON.parse(optional(F.gone) ?? '[]'),
    committed: number(F.committed),
    fields,
  };
}

export interface ClaimWish {
  readonly worker: number;
  readonly now: number;
  /** The backoff as if the turn had failed. */
  readonly retryMs: number;
  /** The rows that `absorbable()` gives, of the inbox as it was read after the head. */
  readonly inbox: readonly InboxRow[];
  /** Names of the signals that were read before the head. A worker that finds one of them later leaves no mark. */
  readonly answered: readonly string[];
}

/** The start of a turn: the change of the claim, and the values that it sets. */
export interface HeadClaim {
  readonly change: Change;
  readonly epoch: number;
  readonly attempt: number;
  readonly semaphores: Semaphores;
  readonly children: number;
}

/** Whether a turn of the actor may begin. @param byHand  also of an actor that is paused or held */
export function isFree(head: ActorHead, byHand = false): boolean {
  return head.worker === 0 && !head.isFinal && (byHand || (!head.isPaused && head.held === undefined));
}

/** Claims an actor that {@link isFree}. The messages that its head names as `gone` have to be removed before. */
export function claimed(head: ActorHead, { worker, now, retryMs, inbox, answered }: ClaimWish): HeadClaim {
  const names = [...new Set([...inbox.map(({ name }) => name), ...answered])];
  const { semaphores, ended } = absorbedFrom(head, inbox);
  const epoch = head.epoch + 1;
  const attempt = head.attempt + 1;
  const set: Record<string, string | number | null> = {
    [F.epoch]: epoch,
    [F.worker]: worker,
    [F.attempt]: attempt,
    [F.claimedAt]: now,
    [F.retryAt]: now + retryMs,
    [F.signal]: null,
    [F.leadsOn]: null,
    [F.held]: null,
    [F.semaphores]: semaphoreText(semaphores),
    [F.absorbed]: names.length === 0 ? null : JSON.stringify(names),
    [F.gone]: null,
  };
  const expect = { ...unchanged(head, [F.epoch, F.fence, F.pausedAt]), [F.worker]: null, [F.finishedAt]: null };
  const add = ended === 0 ? undefined : { [F.children]: -ended };
  return { change: { expect, set, add }, epoch, attempt, semaphores, children: head.children - ended };
}

/** The semaphores with the rows of the inbox that are not absorbed yet, and how many children these rows say have ended. */
export function absorbedFrom(
  head: Pick<ActorHead, 'semaphores' | 'absorbed'>,
  inbox: readonly InboxRow[],
): { readonly semaphores: Semaphores; readonly ended: number } {
  const raised: Record<string, number> = {};
  let ended = 0;
  for (const { name, semaphore, n } of inbox) {
    if (head.absorbed.includes(name)) continue;
    if (semaphore === undefined) ended += n;
    else raised[semaphore] = (raised[semaphore] ?? 0) + n;
  }
  return { semaphores: withDelta(head.semaphores, raised), ended };
}

/** Adds to semaphores. Sums of 0 and below are left out, so no semaphore is below 0. */
export function withDelta(semaphores: Semaphores, delta: Semaphores): Semaphores {
  const sums = Object.entries(delta).reduce<Record<string, number>>(
    (all, [name, n]) => ({ ...all, [name]: (all[name] ?? 0) + n }),
    { ...semaphores },
  );
  return Object.fromEntries(Object.entries(sums).filter(([, n]) => n > 0));
}

function semaphoreText(semaphores: Semaphores): string | null {
  return Object.keys(semaphores).length === 0 ? null : JSON.stringify(semaphores);
}

/** What came while a turn ran: nothing, a signal, or a raise of a semaphore of `always` that leads to another state. */
export type Mark = false | 'signal' | 'leads on';

export function markOf({ signal, leadsOn }: ActorHead): Mark {
  return leadsOn ? 'leads on' : signal && 'signal';
}

/** The outcome of a turn. */
export interface TurnEnd {
  readonly kind: 'to' | 'stay' | 'done' | 'failed' | 'released';
  readonly epoch: number;
  readonly worker: number;
  /** The attempt of the claim. */
  readonly attempt: number;
  readonly semaphores: Semaphores;
  readonly visit: number;
  readonly delta: Semaphores | undefined;
  /** Milliseconds until the actor is due again; undefined: it hibernates. */
  readonly waitMs: number | undefined;
  readonly timerAt: number | undefined;
  /** How many children the turn creates. */
  readonly children: number;
  /** Messages that the turn has read. */
  readonly gone: readonly number[];
  /** The other fields to write: state, fields, times, texts. */
  readonly set: Readonly<Record<string, string | number | null>>;
}

export interface TurnWritten {
  readonly change: Change;
  /** When the actor is due again. A wake row for this time has to be written before the change. */
  readonly wakeAt: number | undefined;
}

/** @param mark  what came since the claim @param children  for `done`: the field of the head as it was when no child was open */
export function committed(
  end: TurnEnd,
  mark: Mark,
  now: number,
  children?: { readonly field: number | null },
): TurnWritten {
  const { kind, epoch, worker, attempt, waitMs } = end;
  const wakeAt = wakeOf(end, mark, now);
  const isSame = kind === 'released';
  const set: Record<string, string | number | null> = {
    ...end.set,
    [F.worker]: null,
    [F.signal]: null,
    [F.leadsOn]: null,
    [F.committed]: epoch,
    [F.wakeAt]: wakeAt ?? null,
    [F.attempt]: kind === 'failed' ? attempt : isSame ? Math.max(attempt - 1, 0) : 0,
    // A signal can wake the actor after a quarter of the wait.
    [F.floorAt]: kind === 'failed' ? now + (waitMs ?? 0) * 0.25 : null,
    [F.gone]: end.gone.length === 0 ? null : JSON.stringify(end.gone),
  };
  if (!isSame) set[F.lost] = null;
  if (kind === 'to') set[F.visit] = end.visit + 1;
  if (kind === 'done') set[F.semaphores] = null;
  else if (end.delta !== undefined) set[F.semaphores] = semaphoreText(withDelta(end.semaphores, end.delta));
  const expect: Record<string, string | number | null> = {
    [F.epoch]: epoch,
    [F.worker]: worker,
    ...marked(mark, epoch),
  };
  if (children !== undefined) expect[F.children] = children.field;
  const add = end.children === 0 ? undefined : { [F.children]: end.children };
  return { change: { expect, set, add }, wakeAt };
}

/** The condition that this is what came during the turn. */
export function marked(mark: Mark, epoch: number): Change['expect'] {
  return { [F.signal]: mark === false ? null : 1, [F.leadsOn]: mark === 'leads on' ? epoch : null };
}

/** How much of its backoff a failed turn waits for. In another state the failing body does not run, so the way there need not wait. */
const SHARE = { signal: 0.25, 'leads on': 0 } as const;

function wakeOf({ kind, waitMs, timerAt }: TurnEnd, mark: Mark, now: number): number | undefined {
  if (kind === 'done') return undefined;
  if (kind === 'failed') return now + (waitMs ?? 0) * (mark === false ? 1 : SHARE[mark]);
  if (mark !== false) return now;
  const times = [...(waitMs === undefined ? [] : [now + waitMs]), ...(timerAt === undefined ? [] : [timerAt])];
  return times.length === 0 ? undefined : Math.min(...times);
}

/** Whether the turn of this epoch was committed. Only its own worker commits a turn. */
export function isCommitted(head: ActorHead, epoch: number): boolean {
  return head.committed === epoch;
}

/**
 * Notes a signal for the commit of the running turn, or for the end of a pause.
 * @param leadsOn  a semaphore of `always` is raised that leads to another state
 * @returns undefined if it is noted already
 */
export function signalled(head: ActorHead, leadsOn: boolean): Change | undefined {
  const isNews = leadsOn && head.worker !== 0 && !head.leadsOn;
  if (head.signal && !isNews) return undefined;
  return {
    expect: unchanged(head, [F.epoch, F.worker, F.pausedAt, F.held, F.signal, F.leadsOn]),
    set: { [F.signal]: 1, ...(isNews && { [F.leadsOn]: head.epoch }) },
  };
}

/** An actor that was lost this often in a row is claimed by a worker that runs nothing else. If it is lost once more, it is held. */
export const ALONE = 2;

/**
 * The condition that these fields are as they were read. In a head that had no turn yet all of them may be missing, as in a missing row. So the
 * condition always includes the time of creation. Otherwise a late request would make a row for an actor that was removed.
 */
export function unchanged(head: Pick<ActorHead, 'fields'>, names: readonly string[]): Change['expect'] {
  return Object.fromEntries([F.createdAt, ...names].map((name) => [name, head.fields[name] ?? null]));
}
