import { instant, type PostgresEngine, statement } from '../../engine/postgres/index.ts';

const PAGES = statement(
  'actor.list_pages',
  `
select p.id::text as id, p.tag, p.severity, p.status, p.summary, p.actor_id::text as actor, p.root, p.suppressed, p.count,
  ${instant('p.opened_at')} as "openedAt", ${instant('p.seen_at')} as "seenAt", ${instant('p.acked_at')} as "ackedAt", p.acked_by as "ackedBy", ${instant('p.resolved_at')} as "resolvedAt"
from pawl.page p
where p.id < $1::bigint and ($2::text is null and p.status <> 'resolved' or $2 in (p.status, 'all')) and ($3::text is null or p.severity = $3)
  and ($5::bigint is null or p.actor_id = $5)
order by p.id desc
limit $4::int`,
);

const ACTOR_WORKERS = statement(
  'actor.workers',
  `
select w.id::text as id, w.host, w.pid, w.concurrency, ${instant('w.started_at')} as "startedAt", ${instant('w.beat_at')} as "beatAt", w.expires_at > clock_timestamp() as "isLive",
  array(select t.name from pawl.actor_type t where t.id = any (w.types) order by t.name) as types
from pawl.actor_worker w
order by w.id
limit 1000`,
);

type Row = Record<string, unknown>;

export interface PageFilter {
  readonly status: string | undefined;
  readonly severity: string | undefined;
  readonly actor: string | undefined;
}

/** Pages and workers of all actors, as the HTTP API lists them. */
export class ActorOverview {
  readonly #reads: PostgresEngine;

  constructor(reads: PostgresEngine) {
    this.#reads = reads;
  }

  pages(before: string, { status, severity, actor }: PageFilter, limit: number): Promise<(Row & { id: string })[]> {
    return this.#reads.query(PAGES, [before, status ?? null, severity ?? null, limit, actor ?? null]);
  }

  workers(): Promise<Row[]> {
    return this.#reads.query(ACTOR_WORKERS);
  }
}
