import { NotFound } from '../../base/errors.ts';
import { only, type PostgresEngine, statement } from '../../engine/postgres/index.ts';
import type { Machine } from '../machine.ts';
import type { PageNotice } from '../pages/channel.ts';
import type { ActorRecord, ActorSummary, ActorTransition, FieldChange, PageRecord } from '../record.ts';
import { readTimes } from './times.ts';

const SHOW = statement('actor.show', 'select pawl.actor_show($1::bigint) as answer');
const FIND = statement(
  'actor.find',
  `
select a.id::text
from pawl.actor_instance a join pawl.actor_type t on t.id = a.type
where t.name = $1 and a.key = $2`,
);
const LISTED = `
select pg_catalog.json_build_object('id', v.id::text, 'type', v.type, 'state', v.state, 'status', v.status, 'key', v.key, 'parent', v.parent::text,
  'attempt', v.attempt, 'error', v.error, 'enteredAt', v.entered_at, 'wakeAt', v.wake_at, 'createdAt', v.created_at) as actor
from pawl.actor v`;
const LISTED_WHERE = `
where v.id < $1
  and ($2::text is null or v.type = $2)
  and ($3::text is null or v.state = $3)
  and ($4::text is null or v.status = $4)
  and ($5::bigint is null or v.parent = $5)
  and ($6::boolean or v.finished_at is null)
order by v.id desc
limit $7`;
const LIST = statement('actor.list', `${LISTED}${LISTED_WHERE}`);
/** Begins with the index, however many actors there are. */
const LIST_BY_FIELDS = statement(
  'actor.list_by_fields',
  `${LISTED}
join (
  select f.actor
  from json_each($8::json) w
  join pawl.actor_type t on t.name = $2
  join pawl.actor_field f on f.type = t.id and f.name = w.key and f.value = pawl.actor_index_value(w.value)
  where f.actor < $1
  group by f.actor
  having count(*) = (select count(*) from json_each($8::json))
) found on found.actor = v.id${LISTED_WHERE}`,
);
const HISTORY = statement(
  'actor.history',
  `
select pg_catalog.json_build_object('at', h.at, 'epoch', h.epoch, 'from', h.from_state, 'to', h.to_state, 'reason', h.reason, 'attempt', h.attempt,
  'error', h.error) as move
from (
  select t.* from pawl.actor_transition t where t.actor = $1 and t.epoch < $2 order by t.at desc, t.epoch desc limit $3
) h
order by h.at, h.epoch`,
);
const FIELD_HISTORY = statement(
  'actor.field_history',
  `
select pg_catalog.json_build_object('at', v.at, 'epoch', v.epoch, 'state', v.state, 'before', v.before, 'after', v.after) as change
from pawl.actor_field_history v
where v.actor_id = $1 and v.epoch < $2
order by v.epoch desc
limit $3`,
);
const TYPES = statement(
  'actor.types',
  `
select t.id, t.name, t.machine, t.semaphores, t.indexes, t.paused_at is not null as paused,
  array(select s.state from pawl.actor_paused_state s where s.type = t.id order by s.state) as "pausedStates"
from pawl.actor_type t
order by t.name`,
);
const COUNTS = statement('actor.counts', 'select pawl.actor_counts($1::smallint, $2::int) as answer');
const HEALTH = statement(
  'actor.health',
  `
select pg_catalog.json_build_object(
  'unattended', coalesce((
    select pg_catalog.json_agg(t.name order by t.name) from pawl.actor_type t
    where t.paused_at is null
      and not exists (select 1 from pawl.actor_worker w where t.id = any (w.types) and w.expires_at > clock_timestamp())
      and exists (
        select 1 from pawl.actor_instance a
        where a.type = t.id and a.wake_at <= (select clock_timestamp()) and a.wake_at is not null and a.paused_at is null and a.held is null)), '[]'),
  'held', coalesce((
    select pg_catalog.json_agg(pg_catalog.json_build_object('actor', h.id::text, 'reason', h.held)) from (
      select a.id, a.held from pawl.actor_instance a where a.held is not null and a.held <> 'the state is paused' and a.lost <> 2 order by a.id limit 100) h), '[]'),
  'lostWorkers', coalesce((
    select pg_catalog.json_agg(w.host || ':' || w.pid::text order by w.id) from pawl.actor_worker w
    where w.expires_at < clock_timestamp() - interval '15 seconds'), '[]'),
  'openPages', (select count(*) from pawl.actor_page p where p.resolved_at is null)
) as health`,
  { prepare: false },
);
const PAUSE = statement('actor.pause', 'select pawl.actor_pause($1::json) as answer');
const PAGE_COLUMNS = `pg_catalog.json_build_object('id', p.id::text, 'tag', p.tag, 'severity', p.severity, 'status', p.status, 'summary', p.summary,
  'details', p.details, 'actor', p.actor_id::text, 'root', p.root, 'suppressed', p.suppressed, 'count', p.count, 'openedAt', p.opened_at,
  'seenAt', p.seen_at, 'ackedAt', p.acked_at, 'ackedBy', p.acked_by, 'resolvedAt', p.resolved_at) as page`;
const PAGES = statement(
  'actor.pages',
  `
select ${PAGE_COLUMNS}
from pawl.page p
where ($1::boolean or p.status <> 'resolved') and ($2::bigint is null or p.actor_id = $2) and p.id < $3
order by p.id desc
limit $4`,
);
const PAGE = statement(
  'actor.page',
  `
select ${PAGE_COLUMNS}
from pawl.page p
where p.id = $1`,
);
const ACK = statement(
  'actor.ack_page',
  `
update pawl.actor_page set acked_at = coalesce(acked_at, clock_timestamp()), acked_by = coalesce(acked_by, $2)
where id = $1 and resolved_at is null
returning tag`,
);
const TAKE_NOTICES = statement('actor.take_notices', 'select pawl.page_take_notices($1::int) as answer');
const NOTE_DELIVERY = statement('actor.note_delivery', 'select pawl.page_note_delivery($1::json)');

/** A silent connection must not delay the pages: another process may deliver them after 30 s. */
const DELIVERY = { deadlineMs: 15_000 };

/** A type, in the form of the database. */
export interface TypeRecord {
  readonly id: number;
  readonly name: string;
  readonly machine: Machine;
  readonly semaphores: readonly string[];
  /** Fields by which its actors can be listed. */
  readonly indexes: readonly string[];
  readonly paused: boolean;
  readonly pausedStates: readonly string[];
}

/** Present and coming problems of the actors of a database. All empty means healthy. */
export interface ActorHealth {
  /** Types with due actors, but without a worker that takes them. */
  readonly unattended: readonly string[];
  /** Actors that no program can run, or that killed their processes; the first hundred. */
  readonly held: readonly { readonly actor: string; readonly reason: string }[];
  /** Host and process id of workers whose lease has ended, and which no other worker has replaced yet. */
  readonly lostWorkers: readonly string[];
  readonly openPages: number;
}

/** The actors that `list` returns; newest first. */
export interface ActorFilter {
  readonly type: string | undefined;
  readonly state: string | undefined;
  readonly status: string | undefined;
  readonly parent: number | undefined;
  /** Values of indexed fields, as JSON. */
  readonly where: string | undefined;
  readonly final: boolean;
  readonly before: number;
  readonly limit: number;
}

/** The pages that `pages` returns; newest first. */
export interface PageFilter {
  readonly resolved: boolean;
  readonly actor: number | undefined;
  readonly before: number;
  readonly limit: number;
}

/** A notification that this process has taken for delivery. */
export interface Notice extends PageNotice {
  readonly attempt: number;
  readonly delivered: readonly string[];
}

/** Queries and operations for people. */
export class PostgresActorReader {
  readonly engine: PostgresEngine;

  constructor(engine: PostgresEngine) {
    this.engine = engine;
  }

  async health(): Promise<ActorHealth> {
    const rows = await this.engine.query<{ health: ActorHealth }>(HEALTH);
    return only(rows).health;
  }

  /** @throws NotFound */
  async show(actor: number): Promise<ActorRecord> {
    const found = await this.look(actor);
    if (found === undefined) throw new NotFound(`there is no actor ${actor}`);
    return found;
  }

  /** @returns undefined if the actor does not exist any more */
  async look(actor: number): Promise<ActorRecord | undefined> {
    const rows = await this.engine.query<{ answer: ActorRecord | null }>(SHOW, [actor]);
    const { answer } = only(rows);
    if (answer === null) return undefined;
    if (answer.worker !== null) readTimes(answer.worker);
    const timers = Object.entries(answer.timers).map(([name, at]) => [name, new Date(at)]);
    return readTimes({ ...answer, timers: Object.fromEntries(timers) });
  }

  async find(type: string, key: string): Promise<string | undefined> {
    const [row] = await this.engine.query<{ id: string }>(FIND, [type, key]);
    return row?.id;
  }

  async list(filter: ActorFilter): Promise<ActorSummary[]> {
    const { before, type, state, status, parent, where, final, limit } = filter;
    const values = [before, type ?? null, state ?? null, status ?? null, parent ?? null, final, limit];
    const rows = await (where === undefined
      ? this.engine.query<{ actor: ActorSummary }>(LIST, values)
      : this.engine.query<{ actor: ActorSummary }>(LIST_BY_FIELDS, [...values, where]));
    return rows.map(({ actor }) => readTimes(actor));
  }

  /** The last transitions before an epoch, oldest first. */
  async history(actor: number, before: number, limit: number): Promise<ActorTransition[]> {
    const rows = await this.engine.query<{ move: ActorTransition }>(HISTORY, [actor, before, limit]);
    return rows.map(({ move }) => readTimes(move));
  }

  /** The last changes before an epoch, newest first. */
  async fieldHistory(actor: number, before: number, limit: number): Promise<FieldChange[]> {
    const rows = await this.engine.query<{ change: FieldChange }>(FIELD_HISTORY, [actor, before, limit]);
    return rows.map(({ change }) => readTimes(change));
  }

  types(): Promise<TypeRecord[]> {
    return this.engine.query<TypeRecord & Record<string, unknown>>(TYPES);
  }

  async counts(type: number, limit: number): Promise<Readonly<Record<string, number>>> {
    const rows = await this.engine.query<{ answer: Record<string, number> }>(COUNTS, [type, limit]);
    return only(rows).answer;
  }

  async pause(what: object): Promise<boolean> {
    const rows = await this.engine.decide<{ answer: boolean }>(PAUSE, [JSON.stringify(what)]);
    return only(rows).answer;
  }

  async pages(filter: PageFilter): Promise<PageRecord[]> {
    const { resolved, actor, before, limit } = filter;
    const rows = await this.engine.query<{ page: PageRecord }>(PAGES, [resolved, actor ?? null, before, limit]);
    return rows.map(({ page }) => readTimes(page));
  }

  /** @throws NotFound */
  async page(id: number): Promise<PageRecord> {
    const [row] = await this.engine.query<{ page: PageRecord }>(PAGE, [id]);
    if (row === undefined) throw new NotFound(`there is no page ${id}`);
    return readTimes(row.page);
  }

  /** @returns whether the page was open */
  async ack(id: number, by: string | undefined): Promise<boolean> {
    return (await this.engine.decide(ACK, [id, by ?? null])).length > 0;
  }

  async takeNotices(limit: number): Promise<Notice[]> {
    const rows = await this.engine.decide<{ answer: Notice[] }>(TAKE_NOTICES, [limit], DELIVERY);
    return only(rows).answer.map((notice) => readTimes(notice));
  }

  async noteDelivery(note: {
    id: string;
    delivered: readonly string[];
    wait: number | null;
    error: string | null;
  }): Promise<void> {
    await this.engine.decide(NOTE_DELIVERY, [JSON.stringify(note)], DELIVERY);
  }
}
