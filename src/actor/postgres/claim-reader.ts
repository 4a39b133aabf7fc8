import type { ActorClaim, ActorHandoff, ClaimAnswer } from '../store.ts';

/** A claimed actor, as pawl.actor_claim_json() writes it. */
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
];

/** Reads what a claim answers. */
export function readClaimAnswer(text: string): ClaimAnswer {
  const { rows, ...rest } = JSON.parse(text) as Omit<ClaimAnswer, 'claims'> & { readonly rows: readonly ClaimedRow[] };
  return { ...rest, claims: rows.map(toClaim) };
}

/** Reads what a notification hands over. */
export function readHandoff(text: string): ActorHandoff {
  const { row, ...rest } = JSON.parse(text) as Omit<ActorHandoff, 'claim'> & { readonly row: ClaimedRow };
  return { ...rest, claim: toClaim(row) };
}

function toClaim(row: ClaimedRow): ActorClaim {
  const [id, type, state, visit, epoch, attempt, version, children, enteredMs, parent, semaphores, fields] = row;
  return { id, type, state, visit, epoch, attempt, version, children, enteredMs, parent, semaphores, fields };
}
