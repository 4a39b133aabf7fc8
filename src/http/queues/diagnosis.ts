import { namePart, type QueueStats } from '../../queue/index.ts';
import type { Hidden } from '../redaction/hidden.ts';

interface Finding {
  readonly code: string;
  readonly level: 'ok' | 'warning' | 'error';
  readonly text: Hidden | string;
  readonly advice?: string;
}

interface Rule {
  readonly code: string;
  readonly level: Finding['level'];
  readonly holds: (stats: QueueStats) => boolean;
  readonly text: (stats: QueueStats) => string;
  readonly advice?: string;
}

const STUCK_MS = 60_000;

/** In the order in which an operator has to repair them. */
const RULES: readonly Rule[] = [
  {
    code: 'paused',
    level: 'warning',
    holds: ({ pausedAt }) => pausedAt !== null,
    text: ({ pausedAt }) => `it has been paused since ${pausedAt?.toISOString()}`,
    advice: 'resume it',
  },
  {
    code: 'no_worker',
    level: 'error',
    holds: ({ workers, ready, parked, delayed }) => workers === 0 && ready + parked + delayed > 0,
    text: () => 'it has no running worker',
    advice: 'start one, or read the log of the last one',
  },
  {
    code: 'part_paused',
    level: 'warning',
    holds: ({ pausedParts }) => pausedParts.length > 0,
    text: ({ pausedParts }) =>
      `${pausedParts.length === 1 ? 'this part is' : 'these parts are'} paused: ${pausedParts.map(namePart).join('; ')}`,
    advice: 'resume the parts that may continue',
  },
  {
    code: 'keys_blocked',
    level: 'error',
    holds: ({ blockedKeys }) => blockedKeys > 0,
    text: ({ blockedKeys }) =>
      `${blockedKeys} ${blockedKeys === 1 ? 'key is blocked by a job that' : 'keys are blocked by jobs that'} ended in error`,
    advice: 'retry or skip these jobs',
  },
  {
    code: 'limit_reached',
    level: 'warning',
    holds: ({ workers, inProgress, slots, ready }) => workers > 0 && inProgress >= slots && ready > 0,
    text: ({ slots, workers }) => `all ${slots} slots of ${workers} workers are busy`,
    advice: 'start more workers, or raise their concurrency',
  },
  {
    code: 'blocked_by_key',
    level: 'warning',
    holds: ({ ready, parked }) => ready === 0 && parked > 0,
    text: ({ parked }) => `${parked} jobs wait behind other jobs of their keys or groups, and none is ready`,
    advice: 'check the jobs that run, or fail, at the head of these keys and groups',
  },
  {
    code: 'scheduled_later',
    level: 'ok',
    holds: ({ ready, parked, delayed }) => ready === 0 && parked === 0 && delayed > 0,
    text: ({ delayed }) => `${delayed} jobs are for later, or back off after a failure; none is ready`,
  },
  {
    code: 'stuck',
    level: 'error',
    holds: ({ workers, pausedAt, ready, completePerMinute, oldestReadyMs }) =>
      workers > 0 && pausedAt === null && ready > 0 && completePerMinute === 0 && (oldestReadyMs ?? 0) > STUCK_MS,
    text: () => 'jobs are ready, workers live, and nothing was completed for a minute',
    advice: 'check the jobs in progress: handlers may hang',
  },
  {
    code: 'errors',
    level: 'warning',
    holds: ({ error }) => error > 0,
    text: ({ error }) => `${error} jobs ended in error`,
    advice: 'mend the cause, then retry them',
  },
];

const STOPS = new Set(['paused', 'no_worker', 'blocked_by_key', 'stuck']);

/** Why a queue moves, or why it does not. @param newest  why its newest waiting job does not run */
export function diagnose(
  stats: QueueStats,
  newest: Hidden | string | undefined,
): { isMoving: boolean; findings: Finding[] } {
  const findings: Finding[] = RULES.filter(({ holds }) => holds(stats)).map(({ code, level, text, advice }) => ({
    code,
    level,
    text: text(stats),
    ...(advice !== undefined && { advice }),
  }));
  if (findings.length === 0) findings.push({ code: 'moving', level: 'ok', text: movement(stats) });
  if (newest !== undefined) findings.push({ code: 'newest', level: 'ok', text: newest });
  return { isMoving: !findings.some(({ code }) => STOPS.has(code)), findings };
}

function movement({ ready, inProgress, completePerMinute }: QueueStats): string {
  if (ready + inProgress === 0) return 'there is nothing to do';
  return `${completePerMinute} jobs were completed within the last minute`;
}
