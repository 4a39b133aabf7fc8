import { instant, type PostgresEngine, statement } from '../../engine/postgres/index.ts';
import type { StoreProbe } from '../content.ts';

/** A namespace with a content store, and how much there is to collect in it. Each count stops at 10,000. */
export interface FileStoreRecord {
  readonly namespace: string;
  /** `disk` or `s3`. */
  readonly kind: string;
  /** The id in the store's marker. */
  readonly store: string;
  readonly attachedAt: Date;
  /** How many sweeps of it were counted. */
  readonly pass: number;
  readonly probe: StoreProbe | null;
  readonly haltedAt: Date | null;
  /** Why the collector has stopped itself; null while it has not. */
  readonly haltedBecause: string | null;
  readonly pending: number;
  readonly retired: number;
  readonly deleting: number;
  readonly deleted: number;
  /** How many of all these objects a sweep would claim now. */
  readonly due: number;
}

/** A process that fetches bytes for hot copies now. */
export interface ReloadRecord {
  /** The SHA-256 of the bytes, in hex. */
  readonly sha256: string;
  /** The host and folder for which it fetches, or `*` for all hosts. */
  readonly scope: string;
  readonly host: string;
  readonly pid: number;
  readonly since: Date;
  /** When another process may take over, unless the lease is renewed. */
  readonly expiresAt: Date;
}

/** The index of collectable objects returns the most urgent first, so that no more rows are read than counted. */
const STORES = statement(
  'files.stores',
  `
select s.space as namespace, s.kind, s.store::text as store, ${instant('s.attached_at')} as "attachedAt", pg_catalog.to_json(s.pass) as pass, s.probe,
  ${instant('s.halted_at')} as "haltedAt", s.halted_because as "haltedBecause", c.*
from pawl.file_store s
cross join lateral (
  select count(*) filter (where x.state = 'pending')::int as pending, count(*) filter (where x.state = 'retired')::int as retired,
    count(*) filter (where x.state = 'deleting')::int as deleting, count(*) filter (where x.state = 'deleted')::int as deleted,
    count(*) filter (where x.collect_at <= clock_timestamp())::int as due
  from (
    select o.state, o.collect_at
    from pawl.file_object o
    where o.space = s.space and o.collect_at is not null
    order by o.collect_at
    limit 10000) x
) c
order by s.space
limit 200`,
);

const RELOADS = statement(
  'files.reloads_all',
  `
select r.sha256, r.scope, r.host, r.pid, ${instant('r.started_at')} as since, ${instant('r.expires_at')} as "expiresAt"
from pawl.file_reload r
where r.space = $1::text and r.expires_at > clock_timestamp()
order by r.started_at
limit 200`,
);

export function readStores(engine: PostgresEngine): Promise<FileStoreRecord[]> {
  return engine.query<FileStoreRecord>(STORES);
}

export function readReloads(engine: PostgresEngine, namespace: string): Promise<ReloadRecord[]> {
  return engine.query<ReloadRecord>(RELOADS, [namespace]);
}
