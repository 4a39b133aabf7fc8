import { expect, onTestFinished, test } from 'vitest';
import { actor, createActorAdmin, createActors } from '../../src/actor/index.ts';
import { createCapture, createCaptureAdmin } from '../../src/capture/index.ts';
import { type PostgresEngine, postgres, statement } from '../../src/engine/postgres/public.ts';
import { createFileAdmin, createFiles, disk } from '../../src/files/index.ts';
import { createHttp } from '../../src/http/index.ts';
import { createLocks } from '../../src/lock/index.ts';
import { createQueue, createQueueAdmin } from '../../src/queue/index.ts';
import { freshDatabase } from '../support/database.ts';
import { NOBODY } from './program.ts';

// A wrong call fails at once; its error says what to pass instead, and contains no secret.

const T = actor('t', { initial: 'one', states: (state) => ({ one: state({ run: (a) => a.done() }) }) });

const KINDS = { kinds: { mail: {}, keyed: { unique: 'key' } } } as const;

/** Each function gets an engine on a migrated database, and its error has to match the pattern. */
const MISTAKES: Readonly<Record<string, readonly [(engine: PostgresEngine) => unknown, RegExp]>> = {
  'createQueue(url)': [
    () => createQueue(NOBODY as never, 'q', KINDS),
    /^createQueue takes what postgres\(\) gives, but was given a text; write createQueue\(postgres\(url\), …\)$/,
  ],
  'createActors(url)': [() => createActors(NOBODY as never, [T]), /^createActors takes what postgres\(\) gives/],
  'createActors without a list': [
    (engine) => createActors(engine, T as never),
    /^createActors takes a list of types: createActors\(engine, \[Server\]\)/,
  ],
  'createCapture(url)': [
    () => createCapture(NOBODY as never, { entity: 'a', root: 'a' }),
    /^createCapture takes what postgres\(\) gives/,
  ],
  'createFiles(url)': [
    () => createFiles(NOBODY as never, { content: disk('objects') }),
    /^createFiles takes what postgres\(\) gives, but was given a text; write createFiles\(postgres\(url\), …\)$/,
  ],
  'createLocks(url)': [
    () => createLocks(NOBODY as never),
    /^createLocks takes what postgres\(\) or dynamodb\(\) gives, but was given a text; write createLocks\(postgres\(url\)\)$/,
  ],
  'createHttp(url)': [() => createHttp(NOBODY as never), /^createHttp takes what postgres\(\) gives/],
  'createHttp(pool)': [
    () => createHttp({ connect: () => {} } as never),
    /^createHttp takes what postgres\(\) gives, but was given an object \{connect\}$/,
  ],
  'createQueueAdmin(undefined)': [
    () => createQueueAdmin(undefined as never),
    /^createQueueAdmin takes what postgres\(\) gives, but was given undefined$/,
  ],
  'createActorAdmin(url)': [() => createActorAdmin(NOBODY as never), /^createActorAdmin takes/],
  'createCaptureAdmin(url)': [() => createCaptureAdmin(NOBODY as never), /^createCaptureAdmin takes/],
  'createFileAdmin(url)': [() => createFileAdmin(NOBODY as never), /^createFileAdmin takes/],
  'postgres(url, url)': [
    () => postgres(NOBODY, NOBODY as never),
    /^the options of postgres must be an object, but was "postgres:\/\/app:\*\*\*@127/,
  ],
  'engine.query(text)': [
    (engine) => engine.query('select 1' as never),
    /^query\(\) takes what statement\(\) gives: query\(statement\('invoice.pay', 'update …'\), values\), but was given "select 1"/,
  ],
  'engine.query()': [
    (engine) => engine.query(undefined as never),
    /^query\(\) takes what statement\(\) gives.*but was given undefined/,
  ],
  'tx.query(text)': [
    (engine) => engine.transaction((tx) => tx.query('select 1' as never)),
    /^query\(\) takes what statement\(\) gives/,
  ],
  'statement(text)': [() => statement('select 1', undefined as never), /^statement\(\) takes a name and a text of SQL/],
  'enqueue({ kind, payload })': [
    (engine) => createQueue(engine, 'q', KINDS).enqueue({ kind: 'mail', payload: 1 } as never, undefined as never),
    /^enqueue takes \(kind, payload, options\): enqueue\('mail', …\), but was given an object \{kind, payload\} for the kind$/,
  ],
  'enqueue of an unknown kind': [
    (engine) => createQueue(engine, 'q', KINDS).enqueue('mial' as never, 1 as never),
    /^queue "q" has no kind "mial"; did you mean "mail"\?$/,
  ],
  'enqueueMany with one unknown kind': [
    (engine) =>
      createQueue(engine, 'q', KINDS).enqueueMany([
        { kind: 'mail', payload: 1 },
        { kind: 'mial' as never, payload: 2 },
      ]),
    /^jobs\[1\]: queue "q" has no kind "mial"; did you mean "mail"\?$/,
  ],
  'enqueueMany with one kind that is no text': [
    (engine) => createQueue(engine, 'q', KINDS).enqueueMany([{ kind: 7 as never, payload: 1 }]),
    /^jobs\[0\]\.kind is a text, but was given 7 for the kind$/,
  ],
  'enqueueMany with one key too few': [
    (engine) => createQueue(engine, 'q', KINDS).enqueueMany([{ kind: 'keyed', payload: 1 }]),
    /^jobs\[0\]: kind "keyed" of queue "q" needs a key/,
  ],
  'actors.create by a name': [
    (engine) => createActors(engine, [T]).create('t' as never, {}),
    /^create\(\) takes what actor\(\) gave, not its name: create\(Server, …\), but was given "t"; createActors was given t$/,
  ],
  'actors.find by a name': [
    (engine) => createActors(engine, [T]).find('t' as never, 'k'),
    /^find\(\) takes what actor/,
  ],
  'a projection built by a text': [
    (engine) =>
      createCapture(engine, { entity: 'a', root: 'a' }).project({
        into: 'b',
        columns: {},
        build: 'select 1' as never,
      }),
    /^option "build" for project must be sql`…`, which builds in the database, or a function, but was "select 1"$/,
  ],
};

test.for(Object.entries(MISTAKES))('%s', async ([, [call, words]]) => {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const error: unknown = await Promise.resolve(engine)
    .then(call)
    .catch((cause: unknown) => cause);
  expect(error).toBeInstanceOf(Error);
  expect((error as Error).message).toMatch(words);
  expect(error).toHaveProperty('code', expect.stringMatching(/^(invalid_input|not_found)$/));
  expect((error as Error).message).not.toContain('secret');
});
