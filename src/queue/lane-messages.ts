import { ConnectionFailed } from '../base/errors.ts';
import { type AnswerOptions, type Session, type Step, statement } from '../engine/postgres/index.ts';
import { claimOneText, type OpenClaim, receiptText } from './postgres.ts';
import { readTaken, receiptStep, type TakeRequest, takeStep, takeText } from './postgres-take.ts';
import type { Claimed, ClaimRequest } from './store.ts';

/** A connection of the transaction hold. */
export interface Lane {
  readonly session: Session;
  /** For what the worker sends itself; a handler's own statements may take as long as they like. */
  readonly answer: AnswerOptions;
  /** Whether what is sent for every job is prepared. */
  readonly takesBatches: boolean;
}

/** What the open transaction is yet to be told before its COMMIT: SQL, or a job without a key that completed. */
export type Told = string | OpenClaim;

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

export async function commit({ session, answer }: Lane, told: Told): Promise<void> {
  await session.run(textOf(told) + COMMIT, answer);
}

/** @param told  undefined when no transaction is open */
export async function look(
  lane: Lane,
  told: Told | undefined,
  request: Omit<ClaimRequest, 'limit' | 'slots' | 'chain'>,
): Promise<Claimed> {
  const text = await ask(lane, told, claimOneText(request));
  return JSON.parse(text ?? '') as Claimed;
}

/** @returns undefined when nothing is left there */
export async function take(lane: Lane, told: Told | undefined, request: TakeRequest): Promise<Claimed | undefined> {
  const isShort = typeof told !== 'string' || told === '';
  const text =
    lane.takesBatches && isShort ? await takeInBatch(lane, told, request) : await ask(lane, told, takeText(request));
  return text === null ? undefined : readTaken(text);
}

async function takeInBatch(
  { session, answer }: Lane,
  told: '' | OpenClaim | undefined,
  request: TakeRequest,
): Promise<string | null> {
  const opening = told === undefined ? [BEGIN_STEP] : told === '' ? [CHAIN_STEP] : [receiptStep(told), CHAIN_STEP];
  const answers = await session.batch([...opening, takeStep(request), SAVEPOINT_STEP], answer);
  return answered(answers.at(-2)?.[0]?.[0]);
}

async function ask({ session, answer }: Lane, told: Told | undefined, call: string): Promise<string | null> {
  const opening = told === undefined ? BEGIN : textOf(told) + COMMIT_AND_BEGIN;
  const results = await session.run<Record<string, string | null>>(`${opening}${call};${SAVEPOINT}`, answer);
  return answered(Object.values(results.at(-2)?.rows[0] ?? {})[0]);
}

function answered(value: string | null | undefined): string | null {
  if (value === undefined) throw new ConnectionFailed('the claim was not answered');
  return value;
}

function textOf(told: Told): string {
  return typeof told === 'string' ? told : `${receiptText(told)};`;
}
