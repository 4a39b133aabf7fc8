import { ConnectionFailed } from '../../../base/errors.ts';
import { BOTH, type Step, statement, WRITE_TO_BOTH } from '../../../engine/postgres/index.ts';
import { claimOneText, quoted, unblockText } from '../../postgres/texts.ts';
import type { Candidate, ClaimAnswer, ClaimOneRequest } from '../../store.ts';
import type { Lane, PendingCommit } from './lane.ts';
import { enrolText, enrolTransactionText, readTaken, receiptStep, takeStep } from './statements.ts';

const BEGIN = 'begin isolation level read committed;';
const COMMIT = 'commit;';
/** Begins the next transaction with the settings of this one: one statement less for the driver to parse. */
const COMMIT_AND_BEGIN = 'commit and chain;';
const SAVEPOINT = 'savepoint pawl_handler;';
const BEGIN_STEP: Step = { statement: statement('queue.begin', BEGIN), values: [] };
const CHAIN_STEP: Step = { statement: statement('queue.commit', COMMIT_AND_BEGIN), values: [] };
const BOTH_STEP: Step = { statement: BOTH, values: [] };
const SAVEPOINT_STEP: Step = { statement: statement('queue.savepoint', SAVEPOINT), values: [] };

/** Rolls back the writes of the handler. */
export const UNDO = 'rollback to savepoint pawl_handler;';

/** Records the worker of this lane's transactions. One round trip for each connection, and none for a job. */
export async function enrol(lane: Lane, worker: number): Promise<void> {
  if (!lane.isPooled) await lane.session.run(enrolText(worker, lane.worker), lane.answer);
  lane.worker = worker;
}

/** The first statements of each transaction. */
function openingOf({ isPooled, spansNodes, worker }: Lane): string {
  const enrolment = isPooled && worker !== undefined ? enrolTransactionText(worker) : '';
  return spansNodes ? `${WRITE_TO_BOTH};${enrolment}` : enrolment;
}

export async function commit({ session, answer }: Lane, pending: PendingCommit): Promise<void> {
  await session.run(textOf(pending) + COMMIT, answer);
}

/** The answer to a lane's own claim. */
export interface ClaimOneAnswer {
  readonly claimed: ClaimAnswer;
  /** How many jobs were moved to unblock it; undefined if nothing had to be done. */
  readonly unblocked: number | undefined;
}

/**
 * Searches for a unit and claims it. The same message first removes what blocked the last search, and commits that: other
 * workers wait for those locks, and must not wait for this process, which may pause before its next message.
 */
export async function claimOne(lane: Lane, pending: PendingCommit, request: ClaimOneRequest): Promise<ClaimOneAnswer> {
  const { blocker } = request;
  const opening = openingOf(lane);
  const unblock = blocker === undefined ? '' : `${unblockText(request, blocker)};${COMMIT_AND_BEGIN}${opening}`;
  const answers = await askByText(lane, pending, unblock + claimOneText(request));
  return {
    claimed: JSON.parse(answered(answers.at(-1)) ?? '') as ClaimAnswer,
    unblocked: blocker === undefined ? undefined : Number(answers.at(-2 - opening.split(';').length)),
  };
}

/** Takes a candidate. @returns undefined when another worker has taken or holds it, and while the queue is paused */
export async function take(
  lane: Lane,
  pending: PendingCommit,
  where: { queue: number; shard: number },
  candidate: Candidate,
): Promise<ClaimAnswer | undefined> {
  const step = takeStep(where, candidate);
  const opening = lane.takesBatches ? openingSteps(lane, pending) : undefined;
  const text =
    opening === undefined
      ? (await askByText(lane, pending, inText(step))).at(-1)
      : (await lane.session.batch([...opening, step, SAVEPOINT_STEP], lane.answer)).at(-2)?.[0]?.[0];
  const taken = answered(text);
  return taken === null ? undefined : readTaken(taken, candidate);
}

/** What begins the next transaction. Undefined for an outcome that needs a text. */
function openingSteps({ spansNodes }: Lane, pending: PendingCommit): Step[] | undefined {
  const steps = stepsOf(pending);
  return spansNodes && steps !== undefined ? [...steps, BOTH_STEP] : steps;
}

function stepsOf(pending: PendingCommit): Step[] | undefined {
  switch (pending.kind) {
    case 'closed':
      return [BEGIN_STEP];
    case 'open':
      return [CHAIN_STEP];
    case 'complete':
      return [receiptStep(pending.claim), CHAIN_STEP];
    case 'outcome':
      return undefined;
  }
}

/** @returns the answer of each statement; that of the call is the last one */
async function askByText(lane: Lane, pending: PendingCommit, call: string): Promise<(string | null | undefined)[]> {
  const { session, answer } = lane;
  const opening = (pending.kind === 'closed' ? BEGIN : textOf(pending) + COMMIT_AND_BEGIN) + openingOf(lane);
  const results = await session.run<Record<string, string | null>>(`${opening}${call};${SAVEPOINT}`, answer);
  return results.slice(0, -1).map(({ rows }) => Object.values(rows[0] ?? {})[0]);
}

function answered(value: string | null | undefined): string | null {
  if (value === undefined) throw new ConnectionFailed('the claim was not answered');
  return value;
}

function textOf(pending: PendingCommit): string {
  switch (pending.kind) {
    case 'closed':
    case 'open':
      return '';
    case 'complete':
      return `${inText(receiptStep(pending.claim))};`;
    case 'outcome':
      return pending.sql;
  }
}

/**
 * A step as text, for connections without prepared statements. Every value is in quotes: a minus sign before a number would
 * be an operator.
 */
function inText({ statement: { text }, values }: Step): string {
  return text.replace(/\$(\d+)/g, (_, n: string) => {
    const value = values[Number(n) - 1];
    return value === undefined || value === null ? 'null' : quoted(String(value));
  });
}
