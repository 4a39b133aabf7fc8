import { formatDuration } from '../../base/time/duration.ts';
import type { ActorRecord, ActorStatus } from '../record.ts';

/** Why an actor is not running, or that it is. */
export interface ActorExplanation {
  readonly id: string;
  readonly type: string;
  readonly state: string;
  readonly status: ActorStatus;
  /** In words, the nearest cause first. */
  readonly reasons: readonly string[];
  /** What can be done about it. */
  readonly advice: readonly string[];
}

/** Describes in words what the record of an actor shows. */
export function explain(record: ActorRecord): ActorExplanation {
  const { id, type, state, status } = record;
  const all = CAUSES.flatMap((cause) => cause(record) ?? []);
  return {
    id,
    type,
    state,
    status,
    reasons: all.map(([reason]) => reason),
    advice: all.flatMap(([, advice]) => (advice === undefined ? [] : [advice])),
  };
}

type Said = readonly [reason: string, advice?: string];

const CAUSES: readonly ((record: ActorRecord) => Said[] | undefined)[] = [
  ({ finishedAt }) => (finishedAt === null ? undefined : [[`it is final since ${finishedAt.toISOString()}`]]),
  ({ worker }) => {
    if (worker === null) return undefined;
    if (worker.lost) {
      return [
        [
          `a turn of it began in ${worker.process}, which sent no heartbeat before its lease ended at ${worker.expiresAt.toISOString()}`,
          'a running worker frees it within seconds; if no worker runs, start one',
        ],
      ];
    }
    return [[`a turn of it is running in ${worker.process} since ${worker.claimedAt.toISOString()}`]];
  },
  ({ id, pausedAt }) =>
    pausedAt === null ? undefined : [[`it is paused since ${pausedAt.toISOString()}`, `pawl actor resume ${id}`]],
  ({ type, typePausedAt }) =>
    typePausedAt === null
      ? undefined
      : [[`its type is paused since ${typePausedAt.toISOString()}`, `pawl actor resume --type ${type}`]],
  ({ type, state, statePausedAt }) =>
    statePausedAt === null
      ? undefined
      : [
          [
            `its state is paused since ${statePausedAt.toISOString()}`,
            `pawl actor resume --type ${type} --state ${state}`,
          ],
        ],
  ({ id, held, statePausedAt, lost }) => {
    if (held === null || statePausedAt !== null) return undefined;
    if (lost >= 3) return [[held, `fix its program, then: pawl actor resume ${id}`]];
    if (lost === 2) return [['its process died or was suspended twice in a row, so it runs alone']];
    return [[held, 'start a worker with a program that knows it']];
  },
  ({ attempt, error, dueInMs, finishedAt, worker }) => {
    if (attempt === 0 || finishedAt !== null || worker !== null) return undefined;
    const when = dueInMs !== null && dueInMs > 0 ? `; it is tried again in ${roughly(dueInMs)}` : '';
    const why = error ?? 'its process died while it ran';
    return [[`its last ${attempt === 1 ? 'turn' : `${attempt} turns`} failed${when}: ${why.replace(/\n[^]*/, '')}`]];
  },
  ({ attempt, dueInMs, finishedAt, worker, wakeAt, timers }) => {
    if (attempt > 0 || dueInMs === null || dueInMs <= 0 || finishedAt !== null || worker !== null) return undefined;
    const timer = Object.entries(timers).find(([, at]) => at.getTime() === wakeAt?.getTime());
    return [[`it naps for another ${roughly(dueInMs)}${timer === undefined ? '' : `, until its timer "${timer[0]}"`}`]];
  },
  ({ dueInMs, finishedAt, worker, openChildren }) => {
    if (dueInMs !== null || finishedAt !== null || worker !== null) return undefined;
    const children = openChildren > 0 ? `; ${openChildren} of its children are not final` : '';
    return [[`it hibernates until a semaphore is raised, a message comes, or its last child is final${children}`]];
  },
  ({ dueInMs, status, ahead, workers, type }) => {
    if (status !== 'due' || dueInMs === null) return undefined;
    if (workers === 0) {
      return [
        [
          `it has been due for ${roughly(-dueInMs)}, but no worker of its type lives`,
          `start a process that runs "${type}"`,
        ],
      ];
    }
    const others = ahead === null || ahead === 0 ? '' : `; ${ahead} of its type are due before it`;
    return [
      [`it has been due for ${roughly(-dueInMs)}${others}`, 'if that lasts, raise concurrency or start more workers'],
    ];
  },
];

/** For people: less than ten seconds to the millisecond, then in whole seconds, minutes, hours or days. */
function roughly(ms: number): string {
  const unit = UNITS.find((one) => ms >= 2 * one) ?? 1;
  return formatDuration(ms < 10_000 ? ms : Math.round(ms / unit) * unit);
}

const UNITS = [86_400_000, 3_600_000, 60_000, 1000] as const;
