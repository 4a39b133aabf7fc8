import type pg from 'pg';
import { plantSql } from '../plants/plant.ts';
import type { EngineName } from './plan.ts';

interface Plant {
  /** Functions of the database, and their changes. */
  readonly sql?: readonly (readonly [name: string, from: RegExp, to: string])[];
  /** A change in every client's process. */
  readonly child?: () => void | Promise<void>;
}

/** Replaces a method. */
function replace<T extends object, K extends keyof T>(prototype: T, name: K, make: (original: T[K]) => T[K]): void {
  prototype[name] = make(prototype[name]);
}

/** A lock counts as held until its release, even after the end of its lease. */
async function believe(): Promise<void> {
  const { HeldLock } = await import('../../../src/lock/lease.ts');
  const released = new WeakSet<object>();
  replace(
    HeldLock.prototype,
    'release',
    (original) =>
      function (this: object) {
        released.add(this);
        return original.call(this as never);
      },
  );
  Object.defineProperty(HeldLock.prototype, 'isHeld', {
    get(this: object) {
      return !released.has(this);
    },
  });
}

/** Replaces the monotonic clock by the wall clock, which a fault can step. */
function waitByTheWall(): void {
  const start = Date.now();
  performance.now = () => Date.now() - start;
}

const FITS = /v_count > 0 and v_count >= least\(v_least, p_capacity\)/;

const TOKEN = /nextval\('pawl\.lock_token'\)/g;

/** No checker finds this: every operation fails at once, as if a trigger of the records were broken. */
export const FAILURE = 'every grant fails';
const FAILING = "raise exception 'a planted failure';";

const FAILURES: Readonly<Record<string, Plant>> = {
  [FAILURE]: {
    sql: [
      ['lock_acquire_one', /\nbegin\n/, `\nbegin\n${FAILING}\n`],
      ['lock_acquire', /\nbegin\n/, `\nbegin\n${FAILING}\n`],
    ],
  },
};

const POSTGRES: Readonly<Record<string, Plant>> = {
  'the guard does nothing': { sql: [['lock_guard', /if v_found < cardinality\(v_names\) then/, 'if false then']] },
  'the guard lets others in': { sql: [['lock_guard', /for key share/, '']] },
  'a held lock is taken': {
    sql: [['lock_acquire', FITS, 'v_count > 0 and v_count >= least(v_least, p_capacity) and random() > 0.3']],
  },
  'readers read together with a writer': { sql: [['lock_acquire', FITS, 'v_count > 0 and v_count >= p_capacity']] },
  'who came last is served first': {
    sql: [
      ['lock_release_one', /order by f\.ticket limit 1/, 'order by f.ticket desc limit 1'],
      ['lock_grant_next', /order by w\.ticket/, 'order by w.ticket desc'],
    ],
  },
  'a token stands still': {
    sql: [
      ['lock_acquire_one', TOKEN, '7'],
      ['lock_release_one', TOKEN, '7'],
      ['lock_grant_next', TOKEN, '7'],
      ['lock_acquire', TOKEN, '7'],
    ],
  },
  'a renewal renews nothing': {
    sql: [
      [
        'lock_beat',
        /set expires_at = case/,
        'set lease_ms = g.lease_ms, expires_at = case when true then g.expires_at',
      ],
    ],
  },
  'leases end too early': {
    sql: [
      ['lock_evict', /g\.expires_at <= clock_timestamp\(\)/, "g.expires_at <= clock_timestamp() + interval '900 ms'"],
      ['lock_acquire', /v_first > v_now/, "v_first > v_now + interval '900 ms'"],
    ],
  },
  'a release releases nothing': {
    sql: [
      ['lock_release_one', /v_now timestamptz;/, 'v_now timestamptz := case when p_token % 3 = 0 then now() end;'],
      [
        'lock_release_one',
        /if current_setting\('transaction_isolation'\) = 'read committed' then/,
        "if v_now is not null then return '{\"released\":true}'; end if; if current_setting('transaction_isolation') = 'read committed' then",
      ],
    ],
  },
  'a run is not counted': { sql: [['lock_release', /if p_finish is not null then/, 'if false then']] },
  'who lost it is not told': {
    child: async () => {
      const { PostgresLockStore } = await import('../../../src/lock/postgres/store.ts');
      replace(
        PostgresLockStore.prototype,
        'renew',
        (original) =>
          async function (this: never, grants, options) {
            return { ...(await original.call(this, grants, options)), renewed: new Set(grants.keys()) };
          },
      );
    },
  },
  'holders believe for ever': { child: believe },
  'waits end by the wall clock': { child: waitByTheWall },
};

const DYNAMODB: Readonly<Record<string, Plant>> = {
  'the guard does nothing': {},
  'conditions always hold': {},
  'holders believe for ever': { child: believe },
  'waits end by the wall clock': { child: waitByTheWall },
  'a renewal renews nothing': {
    child: async () => {
      const { Grants } = await import('../../../src/lock/dynamodb/grants.ts');
      Grants.prototype.renew = async () => true;
    },
  },
  'leases end too early': {
    child: async () => {
      const { Grants } = await import('../../../src/lock/dynamodb/grants.ts');
      replace(
        Grants.prototype,
        'staleInMs',
        (original) =>
          function (this: never, pk, holder) {
            return original.call(this, pk, holder) - 0.8 * holder.leaseMs;
          },
      );
    },
  },
  'a run is not counted': {
    child: async () => {
      const { Grants } = await import('../../../src/lock/dynamodb/grants.ts');
      replace(
        Grants.prototype,
        'release',
        (original) =>
          function (this: never, held, _isCounted, limits) {
            return original.call(this, held, false, limits);
          },
      );
    },
  },
  'a refusal is taken for a grant': {
    child: async () => {
      const { DynamoEngine } = await import('../../../src/engine/dynamodb/index.ts');
      replace(
        DynamoEngine.prototype,
        'update',
        (original) =>
          async function (this: never, ...given) {
            return { ...(await original.call(this, ...given)), isDone: true };
          },
      );
    },
  },
  'a committed write is gone': {},
};

const ALL: Readonly<Record<EngineName, Readonly<Record<string, Plant>>>> = { postgres: POSTGRES, dynamodb: DYNAMODB };

/** Bugs, named by the behaviour of the locks. */
export function plantsOf(engine: EngineName): string[] {
  return Object.keys(ALL[engine]);
}

export async function plantInDatabase(name: string, eye: pg.Pool): Promise<void> {
  for (const [fn, from, to] of find('postgres', name).sql ?? []) {
    await plantSql(eye, fn, (source) => source.replace(from, to));
  }
}

export async function plantInClient(engine: EngineName, name: string): Promise<void> {
  await find(engine, name).child?.();
}

/** @throws Error  there is no such plant */
function find(engine: EngineName, name: string): Plant {
  const found = ALL[engine][name] ?? FAILURES[name];
  if (found === undefined) throw new Error(`there is no plant "${name}"; there are ${plantsOf(engine).join(', ')}`);
  return found;
}
