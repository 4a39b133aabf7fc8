import { LockNotAvailable } from '../../base/errors.ts';
import { sleep } from '../../base/time/clock.ts';
import { only, type PostgresEngine, statement } from '../../engine/postgres/index.ts';
import { PARTITIONS_MS } from '../deadlines.ts';

const KEEP = statement(
  'capture.keep',
  "select k.made, k.dropped from pawl.capture_keep($1::smallint, $2::float8 * interval '1 millisecond', $3::boolean) k",
);

/** How often in a row, with pauses, it tries to lock a log that is in use. Each try makes writers wait for at most 20 ms. */
const TRIES = 10;
const PAUSE_MS = { least: 100, most: 1000 };

/** A capture, and how long to keep its changes in place of what it declares. */
interface PruneRequest {
  readonly capture: number;
  readonly keepMs: number | undefined;
}

/**
 * Makes the partitions of the months to come, and drops the months that no capture keeps, one after another, each in a
 * transaction of its own. Deletes changes of such months from the partition that has the rest. @returns these partitions
 * @throws LockNotAvailable  transactions that read or write the log never leave 20 ms between them
 */
export async function maintainLogPartitions(engine: PostgresEngine, asked?: PruneRequest): Promise<readonly string[]> {
  const dropped: string[] = [];
  for (;;) {
    const step = await keep(engine, [asked?.capture ?? null, asked?.keepMs ?? null, true]);
    if (step.dropped === null && step.made === null) return dropped;
    if (step.dropped !== null && !dropped.includes(step.dropped)) dropped.push(step.dropped);
  }
}

/**
 * Makes the partitions of the months to come, unless the log is in use. Changes of a month without a partition go to the
 * default partition.
 */
export async function makeMonths(engine: PostgresEngine): Promise<void> {
  try {
    while ((await keep(engine, [null, null, false])).made !== null);
  } catch (error) {
    if (!(error instanceof LockNotAvailable)) throw error;
  }
}

interface Step {
  readonly made: string | null;
  readonly dropped: string | null;
}

async function keep(engine: PostgresEngine, values: unknown[]): Promise<Step> {
  for (let tries = 1; ; tries += 1) {
    try {
      return only(await engine.query<Step>(KEEP, values, { deadlineMs: PARTITIONS_MS }));
    } catch (error) {
      if (!(error instanceof LockNotAvailable) || tries >= TRIES) throw error;
      await sleep(PAUSE_MS.least + Math.random() * (PAUSE_MS.most - PAUSE_MS.least));
    }
  }
}
