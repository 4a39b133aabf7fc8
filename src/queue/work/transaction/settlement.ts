import { type OpenClaim, runningText, settleText } from '../../postgres/texts.ts';
import type { Settlement } from '../../store.ts';
import type { AttemptResult } from '../run/attempt.ts';
import { jobsByClaim } from '../settle/settlement.ts';
import type { HeldUnit, PendingCommit } from './lane.ts';
import { UNDO } from './pipeline.ts';

/** The writes of a unit's outcome in the open transaction. */
export function pendingCommitOf(held: HeldUnit, outcome: AttemptResult): PendingCommit {
  const { unit, answer, queue, shard, worker } = held;
  const settlement = settlementOf(held, outcome);
  // If some jobs of a unit are complete, the writes of the handler stay.
  const undo = outcome.complete.length === 0 ? UNDO : '';
  if (answer.claimedAt === undefined) return { kind: 'outcome', sql: `${undo}${settleText(settlement)};` };
  const { claim, number, attempt } = unit.job;
  const { id: claimId, processId } = claim;
  const { claimedAt } = answer;
  const open: OpenClaim = { queue, shard, worker, claim: claimId, claimedAt, processId, attempt, id: number };
  if (outcome.failed.length === 0 && outcome.result === undefined) return { kind: 'complete', claim: open };
  return { kind: 'outcome', sql: `${undo}${runningText(open)};${settleText(settlement)};` };
}

function settlementOf({ unit, queue, shard, worker }: HeldUnit, outcome: AttemptResult): Settlement {
  const failed = [...outcome.failed];
  // Other units of the key that were claimed with it are given back in the same transaction.
  for (let rest = unit.next; rest !== undefined; rest = rest.next) {
    failed.push(
      ...rest.jobs.map(
        (job) => ({ claim: job.claim.id, id: job.number, to: 'release', reason: 'behind a job of its key' }) as const,
      ),
    );
  }
  const byClaim = new Map<number, number[]>();
  for (const job of outcome.complete) byClaim.set(job.claim.id, [...(byClaim.get(job.claim.id) ?? []), job.number]);
  const isWhole = ([claim]: [number, number[]]): boolean => failed.every((job) => job.claim !== claim);
  const { complete, result } = outcome;
  const results =
    complete.length > 1 || result === undefined
      ? []
      : complete.map((job) => ({ id: job.number, claim: job.claim.id, result }));
  return {
    queue,
    shard,
    worker,
    whole: [...byClaim].filter(isWhole).map(([claim]) => claim),
    part: [...byClaim].filter((entry) => !isWhole(entry)).map(([claim, ids]) => ({ claim, ids })),
    failed,
    results,
    shared: complete.length > 1 && result !== undefined ? [{ result, jobs: jobsByClaim(complete) }] : [],
    keys: unit.key === null || unit.epoch === null ? [] : [[unit.key, unit.epoch]],
  };
}
