import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { BULK } from './harness/bulk.ts';
import { type Bench, type Context, inDatabase, interleave, type Series } from './harness/context.ts';
import { atLeast, atMost, percentile, ratio } from './harness/figures.ts';
import { vacuum } from './harness/server.ts';
import type { Side } from './harness/side.ts';

const FULL = { jobs: 100_000, waiting: 1_000_000, full: 10_000, claims: 200 };
const QUICK = { jobs: 20_000, waiting: 100_000, full: 1000, claims: 100 };
/** The number of groups over which the jobs of a drain are spread. */
const GROUPS = 100;
/** The ready jobs of each queue in which claims are measured. */
const READY = 1000;

/** The cost of a limit that is never reached, and of claims while jobs wait for places in full groups. */
export const groups: Bench = async (context) => {
  if (context.peersOnly) return { figures: {}, bars: {} };
  const size = context.quick ? QUICK : FULL;
  const drains = await measureDrains(context, size.jobs);
  const claims = await measureClaims(context, size);
  return {
    figures: {
      ...drains.figures({ drain: 'jobs/s', enqueue: 'jobs/s' }),
      ...claims.figures({ claim_p50: 'ms', claim_p95: 'ms' }),
    },
    bars: {
      drain: atLeast(0.6, ratio(drains.of('groups', 'drain'), drains.of('plain', 'drain'))),
      waiting: atMost(1.5, ratio(claims.of('waiting', 'claim_p50'), claims.of('none', 'claim_p50'))),
    },
  };
};

async function measureDrains(context: Context, count: number): Promise<Series> {
  const side = context.side('pawl');
  const drain = (more: { groups?: number }, jobs: number = count): Promise<Record<string, number>> =>
    inDatabase(context, side, 'groups', async (url) => {
      const enqueued = await side.call('enqueue', { count: jobs, ...BULK, ...more });
      await vacuum(url);
      await context.server.checkpoint();
      const { ms } = await side.call('drain', { count: jobs });
      return { drain: (jobs / ms) * 1000, enqueue: (jobs / enqueued.ms) * 1000 };
    });
  // The side compiles its code here.
  await drain({ groups: GROUPS }, 2000);
  return interleave(context, context.rounds, 'drain', {
    groups: () => drain({ groups: GROUPS }),
    plain: () => drain({}),
  });
}

/** Checks all groups that the enqueues have noted, as workers do while they run. All places of these groups are taken. */
async function lookAtAll(url: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    const left = 'select exists (select from pawl.queue_group_note) as left';
    while ((await client.query<{ left: boolean }>(left)).rows[0]?.left === true) {
      await client.query('select pawl.queue_bring_due(d.id, 0::smallint, true) from pawl.queue_definition d');
    }
  } finally {
    await client.end();
  }
}

/** Claims of a worker with one slot: while no job waits for a place, and while `waiting` jobs wait for places in `full` full groups. */
async function measureClaims(context: Context, { waiting, full, claims }: typeof FULL): Promise<Series> {
  const { server, say } = context;
  const loaded: { side: Side; url: string }[] = [];
  const load = async (fill: (side: Side, url: string) => Promise<unknown>): Promise<Side> => {
    const side = context.side('pawl');
    const url = await server.createDatabase();
    loaded.push({ side, url });
    await side.call('open', { url, profile: 'groups-single' });
    await fill(side, url);
    await side.call('enqueue', { count: READY, ...BULK });
    await vacuum(url);
    return side;
  };
  const measure = (side: Side) => async (): Promise<Record<string, number>> => {
    const { ms } = await side.call('claims', { count: claims });
    return { claim_p50: percentile(ms, 50), claim_p95: percentile(ms, 95) };
  };
  say(`loading a queue in which no job waits, and one with ${waiting} jobs that wait for places of ${full} groups`);
  const none = await load(async () => {});
  const hall = context.side('pawl');
  const behind = await load(async (side, url) => {
    await hall.call('open', { url, profile: 'groups-hall' });
    await hall.call('work');
    await side.call('enqueue', { count: full, kind: 'hold', groups: full, ...BULK });
    while ((await hall.call('handled')).units < full) await sleep(50);
    await side.call('enqueue', { count: waiting, groups: full, ...BULK });
    await lookAtAll(url);
  });
  await server.checkpoint();
  const series = await interleave(context, context.rounds, 'claim', { none: measure(none), waiting: measure(behind) });
  await hall.call('close');
  for (const { side, url } of loaded) {
    await side.call('close');
    await server.dropDatabase(url);
  }
  return series;
}
