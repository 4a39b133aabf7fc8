import { TimedOut } from '../../base/errors.ts';
import { checkOptions, duration, oneOf, optional, signal, text } from '../../base/options/options.ts';
import { moment, sleep, waitedFor } from '../../base/time/clock.ts';
import { formatDuration } from '../../base/time/duration.ts';
import { ACTOR_STATUSES, type ActorRecord } from '../record.ts';
import type { WaitOptions } from './options.ts';

const waitShape = {
  state: optional(text({ min: 1 })),
  status: optional(oneOf(ACTOR_STATUSES)),
  timeout: duration({ default: '30s' }),
  signal,
};
const WAIT_MS = 50;

/** Polls until the actor is in the state, or has the status, of the options. @throws TimedOut */
export async function waitForActor(get: () => Promise<ActorRecord>, options: WaitOptions): Promise<ActorRecord> {
  const { state, status, timeout, signal: stop } = checkOptions('waitFor', options, waitShape);
  const wanted = state === undefined ? (status ?? 'final') : status;
  const begun = moment();
  for (;;) {
    stop?.throwIfAborted();
    const record = await get();
    if ((state ?? record.state) === record.state && (wanted ?? record.status) === record.status) return record;
    if (waitedFor(begun) > timeout) {
      const where = `it is ${record.status} in "${record.state}"`;
      throw new TimedOut(
        `waited ${formatDuration(timeout)} without success for ${record.type} ${record.id} to be ${[wanted, state].filter(Boolean).join(' in ')}; ${where}`,
      );
    }
    await sleep(WAIT_MS, stop);
  }
}
