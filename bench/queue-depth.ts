import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { BULK } from './harness/bulk.ts';
import { type Bench, type Context, inDatabase, interleave, type Series } from './harness/context.ts';
import { atLeast, atMost, percentile, ratio } from './harness/figures.ts';
import { vacuum } from './harness/server.ts';
import type { Side } from './harness/side.ts';

const FULL = { deep: 1_000_000, blocked: 100_000, claims: 200, pinnedMs: 60_000 };
const QUICK = { deep: 200_000, blocked: 20_000, claims: 100, pinnedMs: 15_000 };
/** The ready jobs that are enqueued last in each queue. The shallow queue has no other jobs. */
const READY = 1000;
const DAY_MS = 86_400_000;
/** Jobs kept outstanding while a snapshot is open: enough that the worker never waits. */
const BACKLOG = 20_000;

/** Claims in deep queues, and a drain while an old snapshot keeps every dead row. */
export const queueDepth: Bench = async (context) => {
  if (context.peersOnly) return { figures: {}, bars: {} };
  const size = context.quick ? QUICK : FULL;
  const claims = await measureClaims(context, size);
  const pinned = await measurePinned(context, size.pinnedMs);
  const slowdown = (queue: string): number => ratio(claims.of(queue, 'claim_p50'), claims.of('shallow', 'claim_p50'));
  return {
    figures: {
      ...claims.figures({ claim_p50: 'ms', claim_p95: 'ms', claim_max: 'ms' }),
      ...pinned.figures({ drain: 'jobs/s' }),
    },
    bars: {
      ready: atMost(1.5, slowdown('ready')),
      delayed: atMost(1.5, slowdown('delayed')),
      blocked: atMost(1.5, slowdown('blocked')),
      pinned: atLeast(0.85, ratio(pinned.of('pinned', 'drain'), pinned.of('free', 'drain'))),
    },
  };
};

type Size = typeof FULL;

/** Claim latency in four queues, loaded once and then measured in turns. */
async function measureClaims(context: Context, { deep, blocked, claims }: Size): Promise<Series> {
  const { server, say } = context;
  const loaded: { side: Side; url: string }[] = [];
  const load = async (fill: (side: Side, url: string) => Promise<unknown>): Promise<Side> => {
    const side = context.side('pawl');
    const url = await server.createDatabase();
    loaded.push({ side, url });
    await side.call('open', { url, profile: 'single' });
    await fill(side, url);
    await side.call('enqueue', { count: READY, ...BULK });
    await vacuum(url);
    return side;
  };
  const measure = (side: Side) => async (): Promise<Record<string, number>> => {
    const { ms } = await side.call('claims', { count: claims });
    return { claim_p50: percentile(ms, 50), claim_p95: percentile(ms, 95), claim_max: Math.max(...ms) };
  };

  say(`loading a shallow queue and ones with ${deep} ready, ${deep} delayed and ${blocked} blocked rows`);
  const shallow = await load(async () => {});
  const ready = await load((side) => side.call('enqueue', { count: deep, ...BULK }));
  const delayed = await load((side) => side.call('enqueue', { count: deep, delayMs: DAY_MS, ...BULK }));
  const holder = context.side('pawl');
  const behind = await load(async (side, url) => {
    await side.call('enqueue', { count: blocked, kind: 'hold', keys: 1, prefix: 'held', ...BULK });
    await holder.call('open', { url, profile: 'single' });
    await holder.call('work');
    while ((await holder.call('handled')).units === 0) await sleep(10);
  });
  await server.checkpoint();

  const series = await interleave(context, context.rounds, 'claim', {
    shallow: measure(shallow),
    ready: measure(ready),
    delayed: measure(delayed),
    blocked: measure(behind),
  });
  await holder.call('close');
  for (const { side, url } of loaded) {
    await side.call('close');
    await server.dropDatabase(url);
  }
  return series;
}

/** Jobs per second of a worker that always has jobs: while another session holds a snapshot, and without one. */
async function measurePinned(context: Context, forMs: number): Promise<Series> {
  const worker = context.side('pawl');
  const feeder = context.side('pawl');
  const drain = async (pin: boolean): Promise<{ drain: number }> =>
    inDatabase(context, worker, 'lease', async (url) => {
      await feeder.call('open', { url, profile: 'lease' });
      const reader = new pg.Client(url);
      await reader.connect();
      try {
        await feeder.call('enqueue', { count: BACKLOG, ...BULK });
        await reader.query('begin isolation level repeatable read');
        // The first statement takes the snapshot.
        if (pin) await reader.query('select 1');
        return { drain: await feedAndDrain(feeder, worker, forMs) };
      } finally {
        await reader.end();
        await feeder.call('close');
      }
    });
  // One pair takes two minutes, so a quick run measures only one.
  return interleave(context, context.quick ? 1 : context.rounds, 'pinned', {
    free: () => drain(false),
    pinned: () => drain(true),
  });
}

async function feedAndDrain(feeder: Side, worker: Side, forMs: number): Promise<number> {
  let fed = BACKLOG;
  await worker.call('work');
  const begin = performance.now();
  for (;;) {
    const { jobs } = await worker.call('handled');
    const elapsed = performance.now() - begin;
    if (elapsed >= forMs) return (jobs / elapsed) * 1000;
    const wanted = jobs + BACKLOG - fed;
    if (wanted < BULK.batch) {
      await sleep(5);
      continue;
    }
    await feeder.call('enqueue', { count: wanted, ...BULK });
    fed += wanted;
  }
}
