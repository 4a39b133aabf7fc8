import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { type PostgresEngine, postgres, statement } from '../../../../src/engine/postgres/index.ts';
import { BoundedEngine } from '../../../../src/http/store/bounded-engine.ts';
import { freshDatabase } from '../../../support/database.ts';
import { recordLog } from '../../../support/log.ts';
import { MODELS, most } from '../../../support/long.ts';
import { CAPABILITIES } from '../../../support/strange/capabilities.ts';

type Settings = Readonly<Record<string, string>>;

/** What somebody may have set for a database, a role or a session, each as `alter database … set` takes it. */
const SETTINGS: readonly Settings[] = [
  { DateStyle: "'SQL, DMY'", IntervalStyle: "'sql_standard'", TimeZone: "'Asia/Kathmandu'" },
  { DateStyle: "'German'", IntervalStyle: "'postgres_verbose'" },
  { DateStyle: "'Postgres, MDY'", IntervalStyle: "'iso_8601'", TimeZone: "'America/St_Johns'" },
  { array_nulls: 'off' },
  { transform_null_equals: 'on' },
  { extra_float_digits: "'-15'" },
  { standard_conforming_strings: 'off', backslash_quote: 'on', escape_string_warning: 'off' },
  { quote_all_identifiers: 'on' },
  { bytea_output: "'escape'" },
  { search_path: "''" },
  { default_transaction_isolation: "'serializable'" },
  { default_transaction_isolation: "'repeatable read'" },
  { default_transaction_isolation: "'serializable'", default_transaction_deferrable: 'on' },
  { synchronous_commit: 'off' },
  { plan_cache_mode: "'force_custom_plan'", enable_indexscan: 'off', enable_indexonlyscan: 'off' },
  { row_security: 'off' },
  { jit: 'on', jit_above_cost: '0' },
  { lock_timeout: "'500ms'" },
  { statement_timeout: "'5s'" },
  { idle_session_timeout: "'700ms'" },
  // A transaction of several statements survives only where no process stands still for as long between two of them.
  { idle_in_transaction_session_timeout: "'20s'" },
  { client_encoding: "'LATIN1'", lc_messages: "'C'" },
];

/** As many as run at once, so that the usual run is short; each by itself in a long one. */
const TOGETHER: readonly Settings[] = [
  Object.assign({}, ...SETTINGS.slice(3, 10), SETTINGS[0]),
  Object.assign({}, ...SETTINGS.slice(13, 17), ...SETTINGS.slice(19, 22), SETTINGS[1]),
  { ...SETTINGS[2], ...SETTINGS[12] },
];

/** Most of what a queue does is the same for both holds. */
const exercises = Object.entries(CAPABILITIES).filter(([name]) => MODELS || name !== 'queue (lease)');

describe.for(most([...SETTINGS, ...TOGETHER], ...TOGETHER))('with %j as the defaults of the database', (settings) => {
  test.for(exercises)('%s: what is written and read is the same', async ([, exercise]) => {
    const { url, name } = await freshDatabase();
    const admin = new pg.Client({ connectionString: url });
    await admin.connect();
    for (const [setting, value] of Object.entries(settings)) {
      await admin.query(`alter database "${name}" set ${setting} = ${value}`);
    }
    await admin.end();
    const engine = postgres(url, { max: 12, logger: recordLog() });
    onTestFinished(() => engine.stop());
    await exercise(engine);
  });
});

/** Who reads by single statements: programs, and the HTTP API with a limit for each. */
const READERS: Readonly<Record<string, (engine: PostgresEngine) => PostgresEngine>> = {
  'a program': (engine) => engine,
  'the HTTP API': (engine) => new BoundedEngine(engine, 10_000),
};

test.for(Object.entries(READERS))(
  'a query of %s is answered although the server has ended all connections of the pool for lack of use',
  async ([, reader]) => {
    const { url, name } = await freshDatabase();
    const admin = new pg.Client({ connectionString: url });
    await admin.connect();
    await admin.query(`alter database "${name}" set idle_session_timeout = '300ms'`);
    await admin.end();
    const engine = postgres(url, { max: 4, logger: recordLog() });
    onTestFinished(() => engine.stop());
    const some = statement('test.some', 'select pg_sleep(0.2)');
    await Promise.all([1, 2, 3, 4].map(() => engine.query(some)));
    // So long that no end has reached the pool when the query is sent on the first connection.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1500);
    await expect(reader(engine).query(statement('test.one', 'select 1 as one'))).resolves.toEqual([{ one: 1 }]);
  },
);

test('the engine stops although the server ends its idle connections at that moment', async () => {
  const { url, name } = await freshDatabase();
  const admin = new pg.Client({ connectionString: url });
  await admin.connect();
  await admin.query(`alter database "${name}" set idle_session_timeout = '300ms'`);
  await admin.end();
  const engine = postgres(url, { max: 4, logger: recordLog() });
  const some = statement('test.some', 'select pg_sleep(0.2)');
  await Promise.all([1, 2, 3, 4].map(() => engine.query(some)));
  // The ends have arrived at this process, which reads them after its goodbye.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1500);
  await expect(engine.stop()).resolves.toBeUndefined();
});
