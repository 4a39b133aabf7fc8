import type { ActorClaim, ActorHandoff, ClaimAnswer, TimerTable } from '../store.ts';

/** A claimed actor, in the form of pawl.actor_claim_json(). */
type ClaimedRow = readonly [
  id: number,
  type: number,
  state: string,
  visit: number,
  epoch: number,
  attempt: number,
  version: number,
  children: number,
  enteredMs: number,
  parent: number,
  semaphores: Readonly<Record<string, number>>,
  fields: unknown,
  timers?: TimerTable | null,
  error?: string | null,
  cause?: string | null,
];

/** Reads the answer to a claim. */
export function readClaimAnswer(text: string): ClaimAnswer {
  const { rows, now, ...rest } = JSON.parse(text) as Omit<ClaimAnswer, 'claims'> & {
    readonly rows: readonly ClaimedRow[];
    /** Missing if there are no rows. */
    readonly now?: number;
  };
  return { ...rest, claims: rows.map((row) => toClaim(row, now ?? 0)) };
}

/** Reads a notification of a hand-off. */
export function readHandoff(text: string): ActorHandoff {
  const { row, now, ...rest } = JSON.parse(text) as Omit<ActorHandoff, 'claim'> & {
    readonly row: ClaimedRow;
    readonly now: number;
  };
  return { ...rest, claim: toClaim(row, now) };
}

function toClaim(row: ClaimedRow, nowMs: number): ActorClaim {
  const [id, type, state, visit, epoch, attempt, version, children, enteredMs, parent, semaphores, fields] = row;
  const timers = row[12] ?? undefined;
  const error = row[13] ?? undefined;
  const cause = row[14] ?? undefined;
  return {
    id,
    type,
    state,
    visit,
    epoch,
    attempt,
    version,
    children,
    enteredMs,
    parent,
    semaphores,
    fields,
    timers,
    error,
    cause,
    nowMs,
  };
}
