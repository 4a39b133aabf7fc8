import type { DeadlockStep } from '../../base/errors.ts';
import type { AcquireAnswer, ReleaseResult, WakeUp } from '../store.ts';

export interface AnswerRow {
  answer: string;
}

/** One JSON object, with the columns of the function that decided as its fields. */
export function answerOf<Answer>([row]: readonly AnswerRow[]): Answer {
  return JSON.parse(row?.answer ?? '{}') as Answer;
}

/** Columns that are null may be missing. */
export interface AcquireRow {
  token?: string | null;
  ticket?: string | null;
  ahead?: number | null;
  retry_ms?: number | null;
  place_ms?: number | null;
  is_new?: boolean | null;
  cycle?: CycleStep[] | null;
  holder?: string | null;
}

export function toAnswer(row: AcquireRow): AcquireAnswer {
  if (row.token) return { kind: 'granted', token: BigInt(row.token), firstMs: row.place_ms ?? undefined };
  const { ticket, ahead, retry_ms, place_ms, is_new, cycle, holder } = row;
  if (cycle) return { kind: 'cycle', cycle: toCycle(cycle) };
  const retryMs = retry_ms ?? undefined;
  if (ticket) {
    const place = { ticket: BigInt(ticket), placeMs: place_ms ?? 0, isNew: is_new !== false };
    return { kind: 'waiting', ...place, ahead: ahead ?? 0, retryMs };
  }
  return retryMs === undefined ? { kind: 'held', holder: holder ?? undefined } : { kind: 'done', retryMs };
}

interface ReleaseRow {
  released?: boolean;
  /** Waiters of this process that were granted what was released, or whose turn it is: `nonce token`, or `nonce`, each. */
  called?: string[] | null;
}

export interface WithdrawRow {
  holder?: string | null;
  called?: string[] | null;
}

export function toReleaseResult({ released, called }: ReleaseRow): ReleaseResult {
  return { isReleased: released === true, wakeUps: called?.map(toWakeUp) ?? [] };
}

/** The same words as in a notification. */
export function toWakeUp(words: string): WakeUp {
  const [nonce = '', token] = words.split(' ');
  return { nonce, token: token === undefined ? undefined : BigInt(token) };
}

interface CycleStep {
  name: string;
  token: string | null;
  host: string;
  pid: number;
}

function toCycle(steps: readonly CycleStep[]): DeadlockStep[] {
  return steps.map(({ name, token, host, pid }) => ({
    name,
    token: token === null ? undefined : BigInt(token),
    host,
    pid,
  }));
}
