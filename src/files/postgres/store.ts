import { hostname } from 'node:os';
import { type PostgresEngine, type Statement, statement } from '../../engine/postgres/index.ts';
import type {
  CollectorClaim,
  CollectorPass,
  DocumentLock,
  FileStore,
  PublishCall,
  PublishOutcome,
  Reload,
  RemoveOutcome,
  StoreRow,
  UploadFate,
} from '../store.ts';
import { type PastVersion, type Readable, toPastVersion, toReadable, type VersionJson } from '../version.ts';

const INTEND = statement(
  'files.intend',
  'select pawl.file_intend($1::text, $2::text, $3::uuid, $4::bigint, $5::text, $6::int)',
);
const NOTE_UPLOAD = statement(
  'files.note_upload',
  `update pawl.file_object set upload = $2::text where object = $1::uuid`,
);
const ABANDON = statement('files.abandon', 'select pawl.file_abandon($1::uuid)');
const PUBLISH = statement('files.publish', 'select pawl.file_publish($1::jsonb) as answer');
const CURRENT = statement('files.current', 'select pawl.file_current($1::text, $2::text, $3::bigint) as answer');
const LIST = statement('files.list', 'select pawl.file_list($1::text, $2::text, $3::text, $4::int) as answer');
const PAST = statement('files.past', 'select pawl.file_history($1::text, $2::text, $3::bigint, $4::int) as answer');
const OUTCOME = statement('files.outcome', 'select pawl.file_outcome($1::uuid) as answer');
const STANDING = statement('files.standing', 'select pawl.file_gate_queue($1::text, $2::text) as answer');
const ATTACH = statement('files.attach', 'select pawl.file_attach($1::text, $2::uuid, $3::text) as answer');
const NOTE_PROBE = statement('files.note_probe', 'update pawl.file_store set probe = $2::jsonb where space = $1::text');
const BEGIN_PASS = statement(
  'files.begin_pass',
  'select pawl.file_begin_pass($1::text, $2::bigint, $3::text) as answer',
);
const REARM = statement('files.rearm', 'select pawl.file_rearm($1::text, $2::bigint) as answer');
const CLAIM = statement(
  'files.claim',
  'select object, was, upload, unfinished, deletions, claim::text from pawl.file_claim($1::text, $2::bigint, $3::bigint, $4::int)',
);
const SETTLE = statement('files.settle', 'select pawl.file_settle($1::uuid[], $2::bigint, $3::bigint, $4::bigint[])');
const IS_DUE = statement(
  'files.is_due',
  `
  select exists (
    select from pawl.file_object o where o.space = $1::text and o.collect_at <= clock_timestamp()
  ) as answer`,
);
const DUE = statement('files.due', 'select pawl.file_backlog($1::text) as answer');
const KNOWN = statement('files.known', 'select pawl.file_existing($1::text, $2::uuid[]) as object');
const TAKE_RELOAD = statement(
  'files.take_reload',
  'select pg_catalog.to_json(pawl.file_reload_take($1::text, $2::text, $3::text, $4::uuid, $5::bigint, $6::text, $7::int)::numeric) as answer',
);
const END_RELOAD = statement('files.end_reload', 'select pawl.file_reload_end($1::text, $2::text, $3::text, $4::uuid)');
const RELOADS = statement('files.reloads', 'select pawl.file_reloads($1::text, $2::text) as answer');
const READABLE = statement(
  'files.readable',
  'select pawl.file_readable($1::text, $2::uuid, $3::uuid) as answer limit $4::int',
);

type ReloadJson = Omit<Reload, 'since' | 'expiresAt'> & { readonly sinceMs: number; readonly expiresMs: number };

/** The outcome for an object that may be no version, or may be unknown. */
type OutcomeJson = VersionJson | { readonly version: null; readonly state: string | null };

/** Files on Postgres: every decision is one call of a function in sql/files. */
export class PostgresFileStore implements FileStore {
  readonly #engine: PostgresEngine;
  readonly #space: string;

  constructor(engine: PostgresEngine, space: string) {
    this.#engine = engine;
    this.#space = space;
  }

  async intend(id: string, object: string, pendingMs: number, host: string, pid: number): Promise<void> {
    await this.#engine.query(INTEND, [this.#space, id, object, Math.round(pendingMs), host, pid]);
  }

  async noteUpload(object: string, upload: string): Promise<void> {
    await this.#engine.query(NOTE_UPLOAD, [object, upload]);
  }

  async abandon(object: string): Promise<void> {
    await this.#engine.query(ABANDON, [object]);
  }

  publish(tx: unknown, call: PublishCall): Promise<PublishOutcome> {
    const { checks, ...rest } = call;
    const payload = { ...rest, checks: checks.toString('base64') };
    if (tx !== undefined) return this.#inTransaction(tx, 'file_publish', payload);
    return this.#ask(PUBLISH, [JSON.stringify({ space: this.#space, ...payload })]);
  }

  remove(tx: unknown, id: string, ifVersion: number | undefined, retainMs: number): Promise<RemoveOutcome> {
    return this.#inTransaction(tx, 'file_remove', { id, ifVersion, retainMs });
  }

  async share(tx: unknown, id: string): Promise<Readable | undefined> {
    const answer = await this.#inTransaction<VersionJson | null>(tx, 'file_share', { id });
    return answer === null ? undefined : toReadable(answer);
  }

  async current(id: string, version: number | undefined): Promise<Readable | undefined> {
    const answer = await this.#ask<VersionJson | null>(CURRENT, [this.#space, id, version ?? null]);
    return answer === null ? undefined : toReadable(answer);
  }

  async list(prefix: string, after: string | undefined, limit: number): Promise<PastVersion[]> {
    return this.#versions(LIST, [this.#space, prefix, after ?? null, limit]);
  }

  async past(id: string, before: number | undefined, limit: number): Promise<PastVersion[]> {
    return this.#versions(PAST, [this.#space, id, before ?? null, limit]);
  }

  async outcome(object: string, deadlineMs: number): Promise<UploadFate> {
    const [row] = await this.#engine.query<{ answer: OutcomeJson }>(OUTCOME, [object], { deadlineMs });
    const answer = row?.answer;
    if (answer?.version) return { kind: 'published', version: toPastVersion(answer) };
    return answer?.state === 'pending' ? { kind: 'unpublished' } : { kind: 'collected' };
  }

  async standing(id: string): Promise<DocumentLock[]> {
    const rows = await this.#engine.query<{ answer: DocumentLock & { sinceMs: number | null } }>(STANDING, [
      this.#space,
      id,
    ]);
    return rows.map(({ answer: { sinceMs, ...rest } }) => ({
      ...rest,
      since: sinceMs === null ? null : new Date(sinceMs),
    }));
  }

  attach(store: string, kind: string): Promise<StoreRow> {
    return this.#ask(ATTACH, [this.#space, store, kind]);
  }

  async row(): Promise<StoreRow | undefined> {
    return (await this.#ask<StoreRow | null>(ATTACH, [this.#space, null, null])) ?? undefined;
  }

  async noteProbe(probe: object): Promise<void> {
    await this.#engine.query(NOTE_PROBE, [this.#space, JSON.stringify(probe)]);
  }

  beginPass(markerPass: number, markerDatabase: string): Promise<CollectorPass | { readonly halted: string }> {
    return this.#ask(BEGIN_PASS, [this.#space, markerPass, markerDatabase]);
  }

  rearm(markerPass: number): Promise<CollectorPass> {
    return this.#ask(REARM, [this.#space, markerPass]);
  }

  claim(graceMs: number, leaseMs: number, limit: number): Promise<CollectorClaim[]> {
    return this.#engine.query<CollectorClaim>(CLAIM, [this.#space, Math.round(graceMs), leaseMs, limit]);
  }

  async settle(claimed: readonly CollectorClaim[], tombstoneMs: number, historyMs: number): Promise<void> {
    const history = historyMs === Infinity ? null : Math.round(historyMs);
    const objects = arrayOf(claimed.map(({ object }) => object));
    const claims = arrayOf(claimed.map(({ claim }) => claim));
    await this.#engine.query(SETTLE, [objects, Math.round(tombstoneMs), history, claims]);
  }

  isDue(): Promise<boolean> {
    return this.#ask(IS_DUE, [this.#space]);
  }

  due(): Promise<Readonly<Record<'pending' | 'retired' | 'deleting' | 'deleted' | 'due', number>>> {
    return this.#ask(DUE, [this.#space]);
  }

  async known(objects: readonly string[]): Promise<ReadonlySet<string>> {
    const rows = await this.#engine.query<{ object: string }>(KNOWN, [this.#space, objects]);
    return new Set(rows.map((row) => row.object));
  }

  readable(after: string | undefined, upto: string | undefined, limit: number): Promise<PastVersion[]> {
    return this.#versions(READABLE, [this.#space, after ?? null, upto ?? null, limit]);
  }

  takeReload(scope: string, sha256: string, owner: string, leaseMs: number): Promise<number> {
    return this.#ask(TAKE_RELOAD, [this.#space, scope, sha256, owner, leaseMs, hostname(), process.pid]);
  }

  async endReload(scope: string, sha256: string, owner: string): Promise<void> {
    await this.#engine.query(END_RELOAD, [this.#space, scope, sha256, owner]);
  }

  async reloads(sha256: string): Promise<Reload[]> {
    const rows = await this.#engine.query<{ answer: ReloadJson }>(RELOADS, [this.#space, sha256]);
    return rows.map(({ answer: { sinceMs, expiresMs, ...rest } }) => ({
      ...rest,
      since: new Date(sinceMs),
      expiresAt: new Date(expiresMs),
    }));
  }

  isTransient(error: unknown): boolean {
    return this.#engine.isTransient(error);
  }

  async #inTransaction<Answer>(tx: unknown, name: string, payload: object): Promise<Answer> {
    const json = JSON.stringify({ space: this.#space, ...payload });
    const [row] = await this.#engine.callIn(
      tx,
      `-- files.${name}\nselect pawl.${name}($1::jsonb)::text as answer`,
      json,
    );
    const answer = row?.['answer'];
    return JSON.parse(typeof answer === 'string' ? answer : 'null');
  }

  async #versions(sql: Statement, values: unknown[]): Promise<PastVersion[]> {
    const rows = await this.#engine.query<{ answer: VersionJson }>(sql, values);
    return rows.map((row) => toPastVersion(row.answer));
  }

  /** Calls a function that returns one JSON value. */
  async #ask<Answer>(sql: Statement, values: unknown[]): Promise<Answer> {
    const [row] = await this.#engine.query<{ answer: Answer }>(sql, values);
    if (row === undefined) throw new Error(`"${sql.name}" gave no row, where there is always one`);
    return row.answer;
  }
}

/** The text of an array of values that need no quotes: the driver would check every character of each value. */
function arrayOf(values: readonly string[]): string {
  return `{${values.join(',')}}`;
}
