import { instant, type PostgresEngine, statement } from '../../engine/postgres/index.ts';

const AUDIT = statement(
  'http.audit',
  `
select a.id::text as id, ${instant('a.at')} as at, ${instant('a.ended_at')} as "endedAt", a.who, a.remote, a.user_agent as "userAgent", a.action, a.target, a.details, a.status, a.outcome, a.error
from pawl.audit a
where a.id < $1::bigint and ($2::text is null or a.who = $2) and ($3::text is null or a.action = $3)
order by a.id desc
limit $4::int`,
);

const AUDIT_BEGIN = statement(
  'http.audit_begin',
  `
insert into pawl.http_audit (who, remote, user_agent, action, target, details)
values ($1, $2, $3, $4, $5, $6::json)
returning id::text as id`,
);

const AUDIT_END = statement(
  'http.audit_end',
  'update pawl.http_audit set ended_at = clock_timestamp(), status = $2::smallint, error = $3 where id = $1::bigint',
);

const AUDIT_PRUNE = statement(
  'http.audit_prune',
  `
delete from pawl.http_audit
where id in (select a.id from pawl.http_audit a where a.at < clock_timestamp() - $1::float8 * interval '1 ms' order by a.at limit 1000)`,
);

export interface AuditEntry {
  readonly who: string;
  readonly remote: string | undefined;
  readonly userAgent: string | undefined;
  readonly action: string;
  readonly target: string;
  readonly details: string | null;
}

type Row = Record<string, unknown>;

/** The actions of people. */
export class AuditStore {
  readonly #reads: PostgresEngine;
  readonly #writes: PostgresEngine;

  constructor(reads: PostgresEngine, writes: PostgresEngine) {
    this.#reads = reads;
    this.#writes = writes;
  }

  list(
    before: string,
    who: string | undefined,
    action: string | undefined,
    limit: number,
  ): Promise<(Row & { id: string })[]> {
    return this.#reads.query(AUDIT, [before, who ?? null, action ?? null, limit]);
  }

  /** Committed before the action begins. @returns its id */
  async begin({ who, remote, userAgent, action, target, details }: AuditEntry): Promise<string> {
    const values = [who, remote ?? null, userAgent ?? null, action, target, details];
    const [row] = await this.#writes.query<{ id: string }>(AUDIT_BEGIN, values);
    return row?.id ?? '';
  }

  async end(id: string, status: number, error: string | undefined): Promise<void> {
    await this.#writes.query(AUDIT_END, [id, status, error ?? null]);
  }

  async prune(keepMs: number): Promise<void> {
    await this.#writes.query(AUDIT_PRUNE, [keepMs]);
  }
}
