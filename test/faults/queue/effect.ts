import { statement, type Transaction } from '../../../src/engine/postgres/index.ts';

const EFFECT = statement(
  'faults.effect',
  'insert into faults_effect (job, process_id, token, attempt) select j, $2, $3, $4 from unnest($1::bigint[]) j',
);

/** Jobs of a handler, or of a client that has claimed them by a call. */
export interface HeldJobs {
  readonly jobs: readonly { readonly id: string; readonly payload: unknown }[];
  readonly processId: string;
  readonly token: bigint;
  readonly attempt: number;
}

/** The effect of these jobs: a row for each. */
export async function takeEffect({ jobs, processId, token, attempt }: HeldJobs, tx: Transaction): Promise<void> {
  const ids = jobs.map(({ id }) => id);
  await tx.query(EFFECT, [ids, processId, token.toString(), attempt]);
}
