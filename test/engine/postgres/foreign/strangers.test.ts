import { readdirSync } from 'node:fs';
import pg from 'pg';
import { describe, expect, test, vi } from 'vitest';
import { type PostgresEngine, postgres } from '../../../../src/engine/postgres/index.ts';
import type * as Sql from '../../../../src/engine/postgres/sql.ts';
import { freshDatabase } from '../../../support/database.ts';
import { recordLog } from '../../../support/log.ts';
import { LONG, MODELS } from '../../../support/long.ts';
import { BY_HAND } from '../../../support/strange/by-hand.ts';
import { CAPABILITIES, type Exercise } from '../../../support/strange/capabilities.ts';
import {
  CallLog,
  explainEverything,
  makeStrangers,
  overhear,
  type Strangers,
} from '../../../support/strange/strangers.ts';

const made = vi.hoisted(() => new Map<string, string>());

/** Every statement notes that it was made. */
vi.mock('../../../../src/engine/postgres/sql.ts', async (original) => {
  const real = await original<typeof Sql>();
  return {
    ...real,
    statement: (...given: Parameters<typeof real.statement>): Sql.Statement => {
      const statement = real.statement(...given);
      made.set(statement.name, statement.text);
      return statement;
    },
  };
});

/** Those that are made when a file is loaded. */
const STATEMENTS = await (async () => {
  // Files that ran before in this process have loaded them.
  vi.resetModules();
  const folder = new URL('../../../../src/', import.meta.url);
  for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (/(^|\/)(postgres(-[a-z-]+)?|statements|inspect|backend|index)\.ts$/.test(file))
      await import(new URL(file, folder).href);
  }
  return [...made.values()];
})();

/** In the usual run. What they do not send, the last test below prepares. */
const USUAL = ['locks', 'files', 'migrating'];

const EXERCISES: readonly (readonly [string, Exercise])[] = [
  // Most of what a queue does is the same for both holds.
  ...Object.entries(CAPABILITIES).filter(([name]) => LONG || name !== 'queue (transaction)'),
  ...Object.entries(BY_HAND),
  ['migrating', async (engine: PostgresEngine) => void (await engine.migrate())] as const,
].filter(([name]) => MODELS || USUAL.includes(name));

describe.for(EXERCISES)('where others may create functions: %s', ([name, exercise]) => {
  const migrated = name !== 'migrating';

  test('none of theirs is ever called', { timeout: 120_000 }, async () => {
    const heard = new CallLog();
    await play(exercise, { migrated, prepare: explainEverything, hear: (notice) => heard.hear(notice) });
    const { strangers, called, failure } = await playAmongStrangers(exercise, { migrated, heard });
    expect(strangers.unmade).toEqual([]);
    expect([called, failure]).toEqual([[], undefined]);
  });
});

test.for([
  ['lock_settle_rows(jsonb, text)', 'rows of tables'],
  ['file_publish(jsonb)', 'files'],
] as const)('they would be if pawl.%s were not pinned', async ([name, of]) => {
  const exercise = { ...CAPABILITIES, ...BY_HAND }[of] ?? expect.fail(of);
  const heard = new CallLog();
  await play(exercise, { migrated: true, prepare: explainEverything, hear: (notice) => heard.hear(notice) });
  const before = `alter function pawl.${name} reset search_path`;
  const { called, failure } = await playAmongStrangers(exercise, { migrated: true, heard, before });
  // Called, or chosen for what they cannot do.
  expect([called, failure]).not.toEqual([[], undefined]);
});

test('no statement of Pawl’s would call what others have made, whether it is sent here or not', {
  timeout: 180_000,
}, async () => {
  const texts = STATEMENTS.filter(
    (text) => /^--[^\n]*\n\s*(select|with|insert|update|delete)\b/.test(text) && !PINNED_READS.test(text),
  );
  expect(texts.length).toBeGreaterThan(200);
  const { url, name } = await freshDatabase();
  const admin = new pg.Client({ connectionString: url });
  await admin.connect();
  await explainEverything(admin, name);
  const before = await understand(url, texts);
  const strangers = await makeStrangers(admin, before.calls);
  expect(strangers.count).toBeGreaterThan(50);
  const { rows } = await admin.query<{ oid: string }>(
    `select p.oid::text as oid from pg_proc p where p.pronamespace = 'public'::regnamespace
     union all select o.oid::text from pg_operator o where o.oprnamespace = 'public'::regnamespace`,
  );
  const theirs = new Set(rows.map(({ oid }) => oid));
  const wrong: string[] = [];
  for (const text of texts) {
    const calls = await understand(url, [text]).then((heard) => heard.calls, String);
    if (typeof calls === 'string') wrong.push(`${calls}: ${text}`);
    else if (calls.some(({ oid }) => theirs.has(oid))) wrong.push(text);
  }
  expect(wrong).toEqual([]);
  await admin.end();
});

/** What HTTP reads runs under Pawl's own path: see `BoundedEngine`. */
const PINNED_READS = /^-- http\.(?!audit_|bulk_|delete_|enqueue|run_)/;

/** As Postgres reads them. */
async function understand(url: string, texts: readonly string[]): Promise<CallLog> {
  const heard = new CallLog();
  const client = new pg.Client({ connectionString: url });
  client.on('notice', ({ message = '', detail = '' }) => heard.hear({ message, detail }));
  await client.connect();
  try {
    for (const text of texts) {
      await client.query(`prepare it as ${text.replace(/^--[^\n]*\n/, '')}`);
      await client.query('deallocate it');
    }
  } finally {
    await client.end();
  }
  return heard;
}

interface PlayOutcome {
  readonly strangers: Strangers;
  /** Which of them, and by which statement. */
  readonly called: readonly string[];
  readonly failure: unknown;
}

async function playAmongStrangers(
  exercise: Exercise,
  { migrated, heard, before = '' }: { migrated: boolean; heard: CallLog; before?: string },
): Promise<PlayOutcome> {
  const called = new Set<string>();
  let strangers: Strangers = { count: 0, unmade: [] };
  const failure = await play(exercise, {
    migrated,
    prepare: async (admin) => {
      await admin.query(before);
      strangers = await makeStrangers(admin, heard.calls);
    },
    hear: ({ message }) => void (message.startsWith('a stranger') && called.add(message)),
  }).catch((error: unknown) => error);
  return { strangers, called: [...called].sort(), failure };
}

async function play(
  exercise: (engine: PostgresEngine) => Promise<void>,
  options: {
    migrated: boolean;
    prepare: (admin: pg.Client, database: string) => Promise<void>;
    hear: Parameters<typeof overhear>[0];
  },
): Promise<void> {
  const { url, name } = await freshDatabase({ migrated: options.migrated });
  const admin = new pg.Client({ connectionString: url });
  await admin.connect();
  await options.prepare(admin, name);
  await admin.end();
  const stop = overhear(options.hear);
  const engine = postgres(url, { max: 12, logger: recordLog() });
  try {
    await exercise(engine);
  } finally {
    await engine.stop();
    stop();
  }
}
