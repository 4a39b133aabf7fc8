import { Conflict, ConnectionFailed } from '../../../base/errors.ts';
import { type Step, statement } from '../../../engine/postgres/index.ts';
import { claimOneText, quoted, tidyText } from '../../postgres/store.ts';
import type { ClaimAnswer, LookRequest } from '../../store.ts';
import { readSeen, type Seen } from './candidates.ts';
import type { Lane, PendingCommit } from './lane.ts';
import type { Taking } from './lookahead.ts';
import {
  claimed,
  enrolText,
  enrolTransactionText,
  JOB,
  readTaken,
  readTakenSeen,
  receiptStep,
  takeAtStep,
  takeSeenStep,
  takeStep,
} from './statements.ts';

const BEGIN = 'begin isolation level read committed;';
const COMMIT = 'commit;';
/** The next transaction begins like the one before: one statement less for the driver to take apart. */
const COMMIT_AND_BEGIN = 'commit and chain;';
const SAVEPOINT = 'savepoint pawl_handler;';
const BEGIN_STEP: Step = { statement: statement('queue.begin', BEGIN), values: [] };
const CHAIN_STEP: Step = { statement: statement('queue.commit', COMMIT_AND_BEGIN), values: [] };
const SAVEPOINT_STEP: Step = { statement: statement('queue.savepoint', SAVEPOINT), values: [] };

/** Undoes what the handler wrote. */
export const UNDO = 'rollback to savepoint pawl_handler;';

/** Says whose the transactions of this lane are from now on. One round trip for each connection, and none for a job. */
export async function enrol(lane: Lane, worker: number): Promise<void> {
  if (!lane.isPooled) await lane.session.run(enrolText(worker, lane.worker), lane.answer);
  lane.worker = worker;
}

/** What each transaction begins with. */
function openingOf({ isPooled, worker }: Lane): string {
  return isPooled && worker !== undefined ? enrolTransactionText(worker) : '';
}

export async function commit({ session, answer }: Lane, told: PendingCommit): Promise<void> {
  await session.run(textOf(told) + COMMIT, answer);
}

/** What a look brought. */
export interface LookAnswer {
  readonly claimed: ClaimAnswer;
  /** How many jobs were moved before it; undefined where nothing was to be done. */
  readonly tidied: number | undefined;
}

/**
 * What the last look left undone is done and committed in the same message: others wait for it, and must not wait for this
 * process, which may stand still before it sends the next one.
 * @param told  undefined when no transaction is open
 */
export async function look(lane: Lane, told: PendingCommit | undefined, request: LookRequest): Promise<LookAnswer> {
  const { untidy } = request;
  const opening = openingOf(lane);
  const tidy = untidy === undefined ? '' : `${tidyText(request, untidy)};${COMMIT_AND_BEGIN}${opening}`;
  const answers = await ask(lane, told, tidy + claimOneText(request));
  return {
    claimed: JSON.parse(answered(answers.at(-1)) ?? '') as ClaimAnswer,
    tidied: untidy === undefined ? undefined : Number(answers.at(opening === '' ? -3 : -4)),
  };
}

/** @returns undefined when nothing is left there, or what was picked is somebody else's */
export async function take(
  lane: Lane,
  told: PendingCommit | undefined,
  where: { queue: number; shard: number },
  { from, to, jobs, pick }: Taking,
): Promise<ClaimAnswer | undefined> {
  if (pick !== undefined) {
    const text = await askByStep(lane, told, takeAtStep(where, pick));
    return text === null ? undefined : claimed(readTakenSeen(text), pick.seen);
  }
  const request = { ...where, from, to };
  if (jobs === undefined) {
    const text = await askByStep(lane, told, takeStep(request));
    return text === null ? undefined : readTaken(text);
  }
  const text = await askByStep(lane, told, takeSeenStep(request));
  if (text === null) return undefined;
  const taken = readTakenSeen(text);
  return claimed(taken, jobs.get(taken.id) ?? (await readJob(lane, where.shard, taken.id)));
}

/** A job that came after the look, and stands before its end. */
async function readJob({ session, answer }: Lane, shard: number, id: number): Promise<Seen> {
  const [row] = await session.query<{ job: string }>(JOB, [shard, id], answer);
  const seen = readSeen(JSON.parse(row?.job ?? '[]') as unknown[]).get(id);
  if (seen === undefined) throw new Conflict(`job ${id} is ready to run, but is not there`);
  return seen;
}

async function askByStep(lane: Lane, told: PendingCommit | undefined, step: Step): Promise<string | null> {
  const { session, answer, takesBatches } = lane;
  const isShort = typeof told !== 'string' || told === '';
  if (!takesBatches || !isShort) return answered((await ask(lane, told, inText(step))).at(-1));
  const opening = told === undefined ? [BEGIN_STEP] : told === '' ? [CHAIN_STEP] : [receiptStep(told), CHAIN_STEP];
  const answers = await session.batch([...opening, step, SAVEPOINT_STEP], answer);
  return answered(answers.at(-2)?.[0]?.[0]);
}

/** @returns what each statement answered, the last one of the call at the end */
async function ask(lane: Lane, told: PendingCommit | undefined, call: string): Promise<(string | null | undefined)[]> {
  const { session, answer } = lane;
  const opening = (told === undefined ? BEGIN : textOf(told) + COMMIT_AND_BEGIN) + openingOf(lane);
  const results = await session.run<Record<string, string | null>>(`${opening}${call};${SAVEPOINT}`, answer);
  return results.slice(0, -1).map(({ rows }) => Object.values(rows[0] ?? {})[0]);
}

function answered(value: string | null | undefined): string | null {
  if (value === undefined) throw new ConnectionFailed('the claim was not answered');
  return value;
}

function textOf(told: PendingCommit): string {
  return typeof told === 'string' ? told : `${inText(receiptStep(told))};`;
}

/** A step where nothing can be prepared. Every value is in quotes: a minus sign before a number would be an operator. */
function inText({ statement: { text }, values }: Step): string {
  return text.replace(/\$(\d+)/g, (_, n: string) => {
    const value = values[Number(n) - 1];
    return value === undefined || value === null ? 'null' : quoted(String(value));
  });
}
