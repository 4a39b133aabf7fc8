import { BULK } from './harness/bulk.ts';
import { type Bench, type Context, inDatabase, interleave, type Measure } from './harness/context.ts';
import { atMost, median } from './harness/figures.ts';
import type { Side } from './harness/side.ts';

/** Bytes of WAL that one job writes from its enqueue to its settlement, record included. The payload has 20 bytes. */
export const queueWal: Bench = async (context) => {
  const count = context.quick ? 20_000 : 100_000;
  const { rounds, peersOnly } = context;
  const series = await interleave(context, rounds, 'WAL', {
    ...(!peersOnly && { pawl: wal(context, context.side('pawl'), 'lease', count) }),
    'graphile-local-queue': wal(context, context.side('graphile'), 'local-queue', count),
    'pg-boss-batch': wal(context, context.side('pg-boss'), 'batch', count),
  });
  const figures = series.figures({ wal_enqueue: 'bytes/job', wal_drain: 'bytes/job', wal: 'bytes/job' });
  return { figures, bars: peersOnly ? {} : { wal: atMost(650, median(series.of('pawl', 'wal'))) } };
};

function wal(context: Context, side: Side, profile: string, count: number): Measure {
  const { server } = context;
  return () =>
    inDatabase(context, side, profile, async () => {
      await server.checkpoint();
      const before = await server.walBytes();
      await side.call('enqueue', { count, ...BULK });
      const enqueued = await server.walBytes();
      await side.call('drain', { count });
      const drained = await server.walBytes();
      return {
        wal_enqueue: (enqueued - before) / count,
        wal_drain: (drained - enqueued) / count,
        wal: (drained - before) / count,
      };
    });
}
