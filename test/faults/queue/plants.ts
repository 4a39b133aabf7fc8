import type pg from 'pg';
import { GatheredUnits } from '../../../src/queue/work/batch/unit-batch.ts';
import { Keeper } from '../../../src/queue/work/keeper.ts';
import { Job } from '../../../src/queue/work/run/claimed-job.ts';
import { plantSql } from '../plants/plant.ts';

interface Plant {
  /** Functions of the database, and their changes. */
  readonly sql?: readonly (readonly [name: string, from: RegExp, to: string])[];
  /** A script for the database. */
  readonly script?: string;
  /** A change in every worker's process. */
  readonly child?: () => void;
}

/** Drops rows, by the number of the job of the new row. */
const DROPS = `
create function pawl.plant() returns trigger language plpgsql as $$
begin
  return case when new.id % 4 = 0 then null else new end;
end $$;`;

/** No kind comes after another one, whatever its declaration. */
const FORGETS = `
create function pawl.plant() returns trigger language plpgsql as $$
begin
  new.after := '{}';
  return new;
end $$;
create trigger plant before insert or update on pawl.queue_kind for each row execute function pawl.plant();`;

/** The callback of a batch is enqueued a second time. */
const TWICE = `
create function pawl.plant() returns trigger language plpgsql as $$
begin
  perform pawl.queue_batch_call(new, 1, 0, 0);
  return null;
end $$;
create trigger plant after update on pawl.queue_watch for each row
when (old.over_at is null and new.over_at is not null and new.sort = 'batch') execute function pawl.plant();`;

/** Claims do not see the paused parts of a queue. */
const GOES_ON = `
create function pawl.plant() returns trigger language plpgsql as $$
begin
  new.paused_parts := null;
  return new;
end $$;
create trigger plant before update on pawl.queue_definition for each row execute function pawl.plant();`;

/** Bugs, named by the behaviour of the queue. */
export const PLANTS = [
  'the guard does nothing',
  'a rescue charges no job',
  'the order is reversed',
  'a key is claimed twice',
  'a token stands still',
  'a release charges',
  'what was not run is complete',
  'a unique job is there twice',
  'a predecessor is not waited for',
  'an acknowledged job is lost',
  'an effect is outside of its transaction',
  'a unit begins after its claim is lost',
  'a child does not wait for its parents',
  'a callback is enqueued twice',
  'a dead letter is forgotten',
  'what a job says of its letter is forgotten',
  'two are outstanding',
  'places are not counted',
  'a rate has room for all',
  'two wait',
  'a throttle lets through',
  'a replacement is forgotten',
  'debounced jobs do not wait',
  'a snooze does not wait',
  'an expired job begins',
  'an update is forgotten',
  'what is erased stays',
  'what was completed by hand runs',
  'a paused part goes on',
  'an extension is forgotten',
  'a key goes on past an error',
  'outcomes of a batch are mixed up',
  'a child runs though its parent failed',
  'a batch calls the wrong one',
  'a batch does not wait for the one in it',
  'a pack lets go too early',
  'a pack knows nothing of failures',
] as const;

export type PlantName = (typeof PLANTS)[number];

const ALL: Readonly<Record<PlantName, Plant>> = {
  'the guard does nothing': { sql: [['queue_guard', /if not found then/, 'if false then']] },
  'a rescue charges no job': {
    sql: [['queue_give_back', /case when h\.charged then h\.attempt else h\.attempt - 1 end/, 'h.attempt - 1']],
  },
  'the order is reversed': {
    sql: [['queue_next_units', /order by (r\.|p\.|)id(\s+)limit case/g, 'order by $1id desc$2limit case']],
  },
  'a key is claimed twice': {
    sql: [['queue_claim_keys', /filter \(where h\.epoch is null or \(not h\.held and h\.epoch = t\.head\)\)/, '']],
  },
  'a token stands still': {
    sql: [
      ['queue_claim_keys', /v_epoch := nextval\('pawl\.queue_claim_id'\)/, 'v_epoch := 1'],
      ['queue_add_alone', /v_epoch := nextval\('pawl\.queue_claim_id'\)/, 'v_epoch := 1'],
    ],
  },
  'a release charges': {
    sql: [['queue_fail', /case when a\."to" = 'release' then m\.attempt - 1 else m\.attempt end/, 'm.attempt']],
  },
  'what was not run is complete': { sql: [['queue_remove_running', /u\.ids \* r\.ids as out/, 'r.ids as out']] },
  'a unique job is there twice': {
    sql: [
      ['queue_enqueue_one', /v_only_one := pawl\.queue_is_only_one\(v_rule\);/, 'v_only_one := false; v_rule := null;'],
    ],
  },
  'a predecessor is not waited for': { script: FORGETS },
  'an acknowledged job is lost': {
    script: `${DROPS} create trigger plant before insert on pawl.queue_ready for each row execute function pawl.plant();`,
  },
  'an effect is outside of its transaction': { child: () => {} },
  'a unit begins after its claim is lost': {
    child: () => Object.defineProperty(Keeper.prototype, 'hasLease', { get: () => true }),
  },
  'a child does not wait for its parents': {
    sql: [['queue_add_waiting', /select pawl\.queue_never\(\)/, 'select clock_timestamp()']],
  },
  'a callback is enqueued twice': { script: TWICE },
  'a dead letter is forgotten': {
    sql: [['queue_dead_letters', /if v_own = '\{\}' and not exists \(.*?\) then/, 'if true then']],
  },
  'what a job says of its letter is forgotten': {
    sql: [['queue_dead_letters', /coalesce\(\(select o\.id from .*? 'onError'\), k\.on_error\)/, 'k.on_error']],
  },
  'places are not counted': { sql: [['queue_admit_groups', /p_places - w\.taken/, 'p_places']] },
  'a rate has room for all': { sql: [['queue_rate_room', /select greatest\([^$]*/, 'select 1000']] },
  'two are outstanding': {
    sql: [
      ['queue_enqueue_one', /v_only_one := pawl\.queue_is_only_one\(v_rule\);/, 'v_only_one := false; v_rule := null;'],
    ],
  },
  'two wait': { sql: [['queue_unique_counts', /p_status = 'new'/, 'false']] },
  'a throttle lets through': { sql: [['queue_unique_counts', /p_at \+ p_per > p_now/, 'false']] },
  'a replacement is forgotten': { sql: [['queue_replace', /perform pawl\.update\([^;]*;/, '']] },
  'debounced jobs do not wait': { sql: [['queue_debounce', /v_rest_at <= v_now or/, 'true or']] },
  'a snooze does not wait': {
    sql: [
      [
        'queue_fail',
        /coalesce\(a\.wait, 0\) as wait/,
        "case when a.reason = 'snoozed' then 0 else coalesce(a.wait, 0) end as wait",
      ],
    ],
  },
  'an expired job begins': {
    sql: [['queue_expire', /begin/, 'begin return 0;']],
    child: () => Object.defineProperty(Job.prototype, 'isExpired', { get: () => false }),
  },
  'an update is forgotten': { sql: [['queue_update_job', /coalesce\(p_payload, j\.payload\)/, 'j.payload']] },
  'what is erased stays': { sql: [['queue_erase_job', /delete from pawl\.queue_job j where[^;]*;/, '']] },
  'what was completed by hand runs': {
    sql: [
      [
        'queue_finish_job',
        /v_out := pawl\.queue_take_waiting\([^;]*;/,
        'select true as taken, null::bigint as epoch into v_out;',
      ],
    ],
  },
  'a paused part goes on': { script: GOES_ON },
  'an extension is forgotten': {
    sql: [
      ['queue_extend', /expires_at = v_now \+ coalesce\(v_lease, w\.lease\)/, 'expires_at = w.expires_at'],
      ['queue_extend', /returning w\.expires_at/, 'returning v_now + w.lease'],
    ],
  },
  'a key goes on past an error': { sql: [['queue_block_keys', /if not exists \(.*?\) then/, 'if true then']] },
  'outcomes of a batch are mixed up': {
    child: () => {
      const gather = GatheredUnits.gather.bind(GatheredUnits);
      GatheredUnits.gather = (seen, whole) => gather(seen.toReversed(), whole);
    },
  },
  'a child runs though its parent failed': { sql: [['queue_let_go', /w\.after_error <> 'run'/, 'false']] },
  'a batch calls the wrong one': {
    sql: [['queue_batch_call', /p_errors \+ p_cancels > 0/, 'p_errors + p_cancels = 0']],
  },
  'a pack lets go too early': { sql: [['queue_ended_step', / and not e\.parents && k\.rest/, '']] },
  'a pack knows nothing of failures': {
    sql: [['queue_ended_step', / or not pawl\.queue_unpack\([^;]*\);/, ' or true;']],
  },
  'a batch does not wait for the one in it': {
    sql: [['queue_batch_new', /insert into pawl\.queue_watch_part[^;]*;/, '']],
  },
};

export async function plantInDatabase(name: string, eye: pg.Pool): Promise<void> {
  const { sql = [], script } = find(name);
  for (const [fn, from, to] of sql) await plantSql(eye, fn, (source) => source.replace(from, to));
  if (script !== undefined) await eye.query(script);
}

export function plantInWorker(name: string): void {
  find(name).child?.();
}

function find(name: string): Plant {
  return ALL[readPlant(name)];
}

/** @throws Error  there is no such plant */
export function readPlant(name: string): PlantName {
  const found = PLANTS.find((each) => each === name);
  if (found === undefined) throw new Error(`there is no plant "${name}"; there are ${PLANTS.join(', ')}`);
  return found;
}
