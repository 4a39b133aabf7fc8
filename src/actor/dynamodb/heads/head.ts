/**
 * The head of an actor: the one row that decides. This file has its state and its moves as pure functions; nothing here speaks to a
 * database.
 *
 * - A claim raises the epoch, and expects the epoch and the fence that it has read: of several claims, one is carried out. It takes what
 *   was raised out of the inbox: the names of these rows stay in the head until they are seen gone, so that none counts twice.
 * - A commit expects epoch, worker and the mark that something came (`signal`). A worker that finds a wake row of an actor that runs sets that
 *   mark under the same condition: either the commit sees the mark, or the mark finds the actor as the commit left it.
 * - A rescue raises the epoch of an actor that a dead worker has claimed; an actor that it has only noted to claim gets another
 *   fence, so that a claim under way is refused.
 *
 * An actor is found by rows of its line, see `wake.ts`.
 */
import type { Change, Fields } from '../../../engine/dynamodb/index.ts';

/** The names of the fields: one letter, which needs no placeholder in a request. */
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
} as const;

export interface ActorHead {
  readonly epoch: number;
  readonly fence: number;
  /** 0: no turn of it runs. */
  readonly worker: number;
  /** When it is due, in ms since 1970 by the service's clock; undefined: it hibernates. */
  readonly wakeAt: number | undefined;
  /** When it is due again if the turn that runs does not come to its end. */
  readonly retryAt: number;
  /** After a failure: how early a signal may wake it. */
  readonly floorAt: number;
  /** When a page tells that it is in its state for too long. */
  readonly deadlineAt: number | undefined;
  /** Something came while its turn was running. */
  readonly signal: boolean;
  readonly attempt: number;
  readonly visit: number;
  /** Turns in a row whose process died or stood still. */
  readonly lost: number;
  readonly state: string;
  readonly type: number;
  readonly isFinal: boolean;
  readonly isPaused: boolean;
  readonly held: string | undefined;
  /** That are not final, as far as their ends were absorbed. */
  readonly children: number;
  readonly semaphores: Semaphores;
  /** Rows of the inbox that are in `semaphores` and `children`, and signals that the last claim answers for. */
  readonly absorbed: readonly string[];
  /** Messages that were read, and may still be there. */
  readonly gone: readonly number[];
  /** The last epoch whose own turn was committed. */
  readonly committed: number;
  readonly fields: Fields;
}

export type Semaphores = Readonly<Record<string, number>>;

/** A row of the inbox: a semaphore that was raised, or a child that has ended. */
export interface InboxRow {
  /** Never used again. */
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
  /** The wait as if the turn had failed. */
  readonly retryMs: number;
  /** As it was read after the head; no more than `absorbable()` gives. */
  readonly inbox: readonly InboxRow[];
  /** Names of the signals that were read before the head: another worker that finds one of them leaves no mark. */
  readonly answered: readonly string[];
}

/** What a turn begins with, besides the fields that a claim leaves alone. */
export interface HeadClaim {
  readonly change: Change;
  readonly epoch: number;
  readonly attempt: number;
  readonly semaphores: Semaphores;
  readonly children: number;
}

/** Whether a turn of it may begin. @param byHand  also of an actor that is paused or held */
export function isFree(head: ActorHead, byHand = false): boolean {
  return head.worker === 0 && !head.isFinal && (byHand || (!head.isPaused && head.held === undefined));
}

/** Makes an actor the worker's, which {@link isFree}. What its head names as `gone` has to be removed before. */
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
    [F.held]: null,
    [F.semaphores]: semaphoreText(semaphores),
    [F.absorbed]: names.length === 0 ? null : JSON.stringify(names),
    [F.gone]: null,
  };
  const expect = { ...unchanged(head, [F.epoch, F.fence, F.pausedAt]), [F.worker]: null, [F.finishedAt]: null };
  const add = ended === 0 ? undefined : { [F.children]: -ended };
  return { change: { expect, set, add }, epoch, attempt, semaphores, children: head.children - ended };
}

/** What the semaphores are with the rows of the inbox that are not among them yet, and how many children have ended. */
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

/** What comes to nothing is left out, so none is ever below 0. */
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

/** The outcome of a turn. */
export interface TurnEnd {
  readonly kind: 'to' | 'stay' | 'done' | 'failed' | 'released';
  readonly epoch: number;
  readonly worker: number;
  /** Of the claim. */
  readonly attempt: number;
  readonly semaphores: Semaphores;
  readonly visit: number;
  readonly delta: Semaphores | undefined;
  /** Milliseconds until it is due again; undefined: it hibernates. */
  readonly waitMs: number | undefined;
  readonly timerAt: number | undefined;
  /** Children that it creates. */
  readonly children: number;
  /** Messages that it has read. */
  readonly gone: readonly number[];
  /** What else is written: state, fields, times, texts. */
  readonly set: Readonly<Record<string, string | number | null>>;
}

export interface TurnWritten {
  readonly change: Change;
  /** When it is due again: a wake row for it has to be there before this change is carried out. */
  readonly wakeAt: number | undefined;
}

/** @param signal  something came since the claim @param children  `done`: the field of the head, when none of them was open */
export function committed(
  end: TurnEnd,
  signal: boolean,
  now: number,
  children?: { readonly field: number | null },
): TurnWritten {
  const { kind, epoch, worker, attempt, waitMs } = end;
  const wakeAt = wakeOf(end, signal, now);
  const isSame = kind === 'released';
  const set: Record<string, string | number | null> = {
    ...end.set,
    [F.worker]: null,
    [F.signal]: null,
    [F.committed]: epoch,
    [F.wakeAt]: wakeAt ?? null,
    [F.attempt]: kind === 'failed' ? attempt : isSame ? Math.max(attempt - 1, 0) : 0,
    // A quarter of the wait is what a signal can save.
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
    [F.signal]: signal ? 1 : null,
  };
  if (children !== undefined) expect[F.children] = children.field;
  const add = end.children === 0 ? undefined : { [F.children]: end.children };
  return { change: { expect, set, add }, wakeAt };
}

function wakeOf({ kind, waitMs, timerAt }: TurnEnd, signal: boolean, now: number): number | undefined {
  if (kind === 'done') return undefined;
  if (kind === 'failed') return now + (waitMs ?? 0) * (signal ? 0.25 : 1);
  if (signal) return now;
  const times = [...(waitMs === undefined ? [] : [now + waitMs]), ...(timerAt === undefined ? [] : [timerAt])];
  return times.length === 0 ? undefined : Math.min(...times);
}

/** Whether the turn of this epoch was committed: its own worker alone does that. */
export function isCommitted(head: ActorHead, epoch: number): boolean {
  return head.committed === epoch;
}

/** Notes that something came, for the commit of the turn that runs, or for the end of a pause. @returns undefined when that is noted */
export function signalled(head: ActorHead): Change | undefined {
  if (head.signal) return undefined;
  return { expect: unchanged(head, [F.epoch, F.worker, F.pausedAt, F.held, F.signal]), set: { [F.signal]: 1 } };
}

/** Whether what its process died of is known: the others of that process are innocent. */
export interface Verdict {
  readonly isSuspected: boolean;
  readonly now: number;
  readonly error: string;
}

/** Lost so often in a row, an actor is claimed apart, by a worker that runs nothing else; once more, and it is held. */
export const ALONE = 2;

export interface Rescue {
  /** Undefined: another rescue has carried it out, and may have ended before it put the row. */
  readonly change: Change | undefined;
  /** The row that is put after the change, before the note of the worker is removed. */
  readonly row: { readonly at: number; readonly epoch: number } | undefined;
}

/**
 * Takes an actor from a dead worker: one that it runs, or was about to claim at this epoch.
 * @returns undefined when it has nothing to do with that worker any more
 */
export function rescued(head: ActorHead, worker: number, before: number, verdict: Verdict): Rescue | undefined {
  if (head.worker === 0 && head.epoch === before) {
    return {
      change: {
        expect: { ...unchanged(head, [F.epoch, F.fence]), [F.worker]: null },
        set: { [F.fence]: head.fence + 1 },
      },
      row: undefined,
    };
  }
  if (head.worker === 0 && head.epoch === before + 2 && head.wakeAt !== undefined) {
    return { change: undefined, row: { at: head.wakeAt, epoch: head.epoch } };
  }
  if (head.worker !== worker || head.epoch !== before + 1) return undefined;
  const isInnocent = verdict.isSuspected && head.lost === 0;
  const wakeAt = isInnocent ? verdict.now : head.signal ? Math.min(head.retryAt, verdict.now) : head.retryAt;
  return {
    change: {
      expect: { [F.epoch]: head.epoch, [F.worker]: worker, [F.signal]: head.signal ? 1 : null },
      set: {
        [F.epoch]: head.epoch + 1,
        [F.worker]: null,
        [F.signal]: null,
        [F.floorAt]: null,
        [F.wakeAt]: wakeAt,
        [F.attempt]: isInnocent ? Math.max(head.attempt - 1, 0) : head.attempt,
        [F.lost]: isInnocent ? null : head.lost + 1,
        [F.error]: verdict.error,
      },
    },
    row: { at: wakeAt, epoch: head.epoch + 1 },
  };
}

/**
 * That these fields are as they were read. All of them may be missing in a head that no turn has had yet, as they are where there is no row:
 * so the time of its creation is always one of them, or a request that comes late would make a row for an actor that was removed.
 */
export function unchanged(head: Pick<ActorHead, 'fields'>, names: readonly string[]): Change['expect'] {
  return Object.fromEntries([F.createdAt, ...names].map((name) => [name, head.fields[name] ?? null]));
}
