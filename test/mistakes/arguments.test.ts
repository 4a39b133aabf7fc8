import { expect, onTestFinished, test } from 'vitest';
import { actor, createActorAdmin, createActors } from '../../src/actor/index.ts';
import { createCapture, createCaptureAdmin } from '../../src/capture/index.ts';
import { type PostgresEngine, postgres, statement } from '../../src/engine/postgres/public.ts';
import { createFileAdmin, createFiles, disk } from '../../src/files/index.ts';
import { createHttp, serve } from '../../src/http/index.ts';
import { createLocks } from '../../src/lock/index.ts';
import { createQueue, createQueueAdmin } from '../../src/queue/index.ts';
import { testQueue } from '../../src/testing/index.ts';
import { freshDatabase } from '../support/database.ts';
import { NOBODY } from './program.ts';

// A wrong call fails at once; its error says what to pass instead, and contains no secret.

const T = actor('t', { initial: 'one', states: (state) => ({ one: state({ run: (a) => a.done() }) }) });

const KINDS = { kinds: { mail: {}, keyed: { unique: 'key' } } } as const;

/** Each function gets an engine on a migrated database, and its error has to match the pattern. */
const MISTAKES: Readonly<Record<string, readonly [(engine: PostgresEngine) => unknown, RegExp]>> = {
  'createQueue(url)': [
    () => createQueue(NOBODY as never, 'q', KINDS),
    /^createQueue takes the result of postgres\(\), but was given a text; write createQueue\(postgres\(url\), …\)$/,
  ],
  'createActors(url)': [() => createActors(NOBODY as never, [T]), /^createActors takes the result of postgres\(\)/],
  'createActors without a list': [
    (engine) => createActors(engine, T as never),
    /^createActors takes a list of types: createActors\(engine, \[Server\]\)/,
  ],
  'createCapture(url)': [
    () => createCapture(NOBODY as never, { entity: 'a', root: 'a' }),
    /^createCapture takes the result of postgres\(\)/,
  ],
  'createFiles(url)': [
    () => createFiles(NOBODY as never, { content: disk('objects') }),
    /^createFiles takes the result of postgres\(\), but was given a text; write createFiles\(postgres\(url\), …\)$/,
  ],
  'createLocks(url)': [
    () => createLocks(NOBODY as never),
    /^createLocks takes the result of postgres\(\) or dynamodb\(\), but was given a text; write createLocks\(postgres\(url\)\)$/,
  ],
  'createHttp(url)': [() => createHttp(NOBODY as never), /^createHttp takes the result of postgres\(\)/],
  'createHttp(pool)': [
    () => createHttp({ connect: () => {} } as never),
    /^createHttp takes the result of postgres\(\), but was given an object \{connect\}$/,
  ],
  'createQueueAdmin(undefined)': [
    () => createQueueAdmin(undefined as never),
    /^createQueueAdmin takes the result of postgres\(\), but was given undefined$/,
  ],
  'createActorAdmin(url)': [() => createActorAdmin(NOBODY as never), /^createActorAdmin takes/],
  'createCaptureAdmin(url)': [() => createCaptureAdmin(NOBODY as never), /^createCaptureAdmin takes/],
  'createFileAdmin(url)': [() => createFileAdmin(NOBODY as never), /^createFileAdmin takes/],
  'serve(handler, port)': [
    (engine) => serve(createHttp(engine), 3000 as never),
    /^the options of serve must be an object, but was 3000$/,
  ],
  'testQueue(engine)': [
    (engine) => testQueue(engine as never),
    /^testQueue takes a queue on Postgres: testQueue\(mail, /,
  ],
  'postgres(url, url)': [
    () => postgres(NOBODY, NOBODY as never),
    /^the options of postgres must be an object, but was "postgres:\/\/app:\*\*\*@127/,
  ],
  'engine.query(text)': [
    (engine) => engine.query('select 1' as never),
    /^query\(\) takes the result of statement\(\): query\(statement\('invoice.pay', 'update …'\), values\), but was given "select 1"/,
  ],
  'engine.query()': [
    (engine) => engine.query(undefined as never),
    /^query\(\) takes the result of statement\(\).*but was given undefined/,
  ],
  'engine.query of a statement that is refused': [
    (engine) => engine.query(statement('invoice.pay', 'selct 1')),
    /^the database refused the statement "invoice\.pay": syntax error at or near "selct" \(SQLSTATE 42601\)$/,
  ],
  'two statements of one name': [
    (engine) =>
      engine.transaction(async (tx) => {
        await tx.query(statement('same', 'select 1'));
        await tx.query(statement('same', 'select 2'));
      }),
    /^two statements with different texts are named "same": .* give each its own/,
  ],
  'engine.transaction(options, fn)': [
    (engine) => engine.transaction({ isolation: 'serializable' } as never, (() => {}) as never),
    /^transaction\(\) takes a function, and its options after that, but was given an object \{isolation\}$/,
  ],
  'postgres of an empty variable': [
    () => postgres(''),
    /^option "url" for postgres is an empty text; check that its environment variable is set$/,
  ],
  'postgres(url) with a port that is none': [
    () => postgres('postgres://app:secret@localhost:99999/app'),
    /^option "url" for postgres cannot be read: its port/,
  ],
  'postgres(url) with a password that is not escaped': [
    () => postgres('postgres://app:secret/7@localhost/app'),
    /^option "url" for postgres cannot be read: .* \(encodeURIComponent\); it is not shown here$/,
  ],
  'tx.query(text)': [
    (engine) => engine.transaction((tx) => tx.query('select 1' as never)),
    /^query\(\) takes the result of statement\(\)/,
  ],
  'statement(text)': [() => statement('select 1', undefined as never), /^statement\(\) takes a name and a text of SQL/],
  'enqueue({ kind, payload })': [
    (engine) => createQueue(engine, 'q', KINDS).enqueue({ kind: 'mail', payload: 1 } as never, undefined as never),
    /^enqueue takes \(kind, payload, options\): enqueue\('mail', …\), but was given an object \{kind, payload\} for the kind$/,
  ],
  'get(what enqueue gave)': [
    async (engine) => {
      const queue = createQueue(engine, 'q', KINDS);
      await queue.get((await queue.enqueue('mail', 1)) as never);
    },
    /^get takes the id alone, '1', but was given an object with that id$/,
  ],
  'waitFor(what enqueue gave)': [
    async (engine) => {
      const queue = createQueue(engine, 'q', KINDS);
      await queue.waitFor((await queue.enqueue('mail', 1)) as never);
    },
    /^waitFor takes the id alone, '1'/,
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
    /^create\(\) takes an actor type that actor\(\) returned, not its name: create\(Server, …\), but was given "t"; createActors was given t$/,
  ],
  'actors.find by a name': [
    (engine) => createActors(engine, [T]).find('t' as never, 'k'),
    /^find\(\) takes an actor type that actor/,
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
  expect(error).toHaveProperty('code', expect.stringMatching(/^(invalid_input|not_found|database_error)$/));
  expect((error as Error).message).not.toContain('secret');
});
