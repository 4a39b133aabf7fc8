import { type Capture, createCapture, type Follower, type Projection, Sql, sql } from '../../../src/capture/index.ts';
import { type PostgresEngine, statement } from '../../../src/engine/postgres/index.ts';
import { COLUMNS, ROW, VIA } from './schema.ts';

export interface Shop {
  /** The capture with two projections in its own database and one in another database. */
  readonly orders: Capture;
  readonly copy: Projection;
  readonly projections: readonly Projection[];
  /** The capture with a history, and with a follower that stores its changes. */
  readonly changes: Capture;
  readonly follower: Follower;
}

export const PROJECTED = ['orders_a', 'orders_b'] as const;
export const COPIED = 'orders_copy';

const SOME = `${ROW} where o.id = any ($1::int[])`;
const BY_HAND = statement('faults.build', SOME, { prepare: false });
const KEEP = statement(
  'faults.journal',
  'insert into faults_journal (change, source, op, key, old_key) select * from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[])',
);

/** The declarations of every process of a schedule. */
export function declare(engine: PostgresEngine, to: PostgresEngine): Shop {
  const orders = createCapture(engine, { entity: 'ord', root: 'orders', via: VIA });
  const query = sql`${new Sql(SOME)}`;
  const a = orders.project({ into: PROJECTED[0], columns: COLUMNS, build: query });
  const b = orders.project({
    into: PROJECTED[1],
    columns: COLUMNS,
    build: async (ids, tx) => tx.query(BY_HAND, [ids]),
  });
  const copy = orders.project({ into: COPIED, to, columns: COLUMNS, build: query });
  const changes = createCapture(engine, {
    entity: 'shop',
    root: 'orders',
    via: { order_line: 'order_id' },
    history: { orders: { rows: 'both', columns: ['status', 'freight'] }, order_line: 'keys' },
  });
  const follower = changes.follow({
    name: 'journal',
    handler: async (given, tx) => {
      const column = (of: (change: (typeof given)[number]) => string | null): (string | null)[] => given.map(of);
      await tx.query(KEEP, [
        column(({ id }) => id),
        column(({ table }) => table),
        column(({ op }) => op),
        column(({ key }) => key),
        column(({ oldKey }) => oldKey),
      ]);
    },
  });
  return { orders, copy, projections: [a, b, copy], changes, follower };
}
