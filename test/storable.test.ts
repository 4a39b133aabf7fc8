import { expect, onTestFinished, test } from 'vitest';
import { actor } from '../src/actor/index.ts';
import { InvalidInput } from '../src/base/errors.ts';
import { statement } from '../src/engine/postgres/index.ts';
import { createLocks } from '../src/lock/index.ts';
import { createQueue, createQueueAdmin } from '../src/queue/index.ts';
import { openScene } from './actor/scene.ts';
import { makeHouse } from './http/house.ts';
import { eventually } from './support/eventually.ts';

// What a database cannot hold is refused at every door, in the same words, before anything is written.

const TEXTS = ['a\0b', 'half \ud83d'];
const VALUES = [...TEXTS, { deep: [{ '\0': 1 }] }, { half: '\udc00' }];
const REFUSED = /U\+0000 (?:or a|and) lone surrogate/;

const Any = actor('any', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.done() }) }) });

type Doors = Readonly<Record<string, (bad: never) => unknown>>;

async function expectRefused(doors: Doors, values: readonly unknown[]): Promise<void> {
  for (const [door, ask] of Object.entries(doors)) {
    for (const value of values) {
      const error: unknown = await Promise.resolve()
        .then(() => ask(value as never))
        .catch((cause: unknown) => cause);
      expect(error, `${door}: ${JSON.stringify(value)}`).toBeInstanceOf(InvalidInput);
      expect(String(error), door).toMatch(REFUSED);
    }
  }
}

test('queues: payloads, keys, reasons, progress and results', async () => {
  const scene = await openScene([Any]);
  const kinds = { job: { attempts: 1 }, once: { unique: 'key' } } as const;
  const queue = createQueue(scene.engine, 'doors', { kinds });
  const admin = createQueueAdmin(scene.engine);
  await queue.register();
  await expectRefused(
    {
      enqueue: (payload) => queue.enqueue('job', payload),
      'enqueue, unique': (payload) => queue.enqueue('once', payload, { key: 'a' }),
      enqueueMany: (payload) =>
        queue.enqueueMany([
          { kind: 'job', payload: 1 },
          { kind: 'job', payload },
        ]),
      'enqueue by an admin': (payload) => admin.enqueue('doors', 'job', payload),
      schedule: (payload) => queue.schedule('tick', { cron: '0 0 * * *', kind: 'job', payload }),
    },
    VALUES,
  );
  await expectRefused(
    {
      'key of enqueue': (key) => queue.enqueue('job', 1, { key }),
      'key of enqueueMany': (key) => queue.enqueueMany([{ kind: 'job', payload: 1, key }]),
      'key by an admin': (key) => admin.enqueue('doors', 'job', 1, { key }),
      'key of schedule': (key) => queue.schedule('tick', { cron: '0 0 * * *', kind: 'job', payload: 1, key }),
      'name of schedule': (name) => queue.schedule(name, { cron: '0 0 * * *', kind: 'job', payload: 1 }),
      reason: (reason) => queue.cancel('1', { reason }),
      'name of a queue': (name) => createQueue(scene.engine, name, { kinds }),
    },
    TEXTS,
  );
  expect(await queue.stats()).toMatchObject({ new: 0, delayed: 0 });
  const progress: unknown[] = [];
  const bad = VALUES[2];
  const worker = queue.work({
    job: async (unit) => {
      await unit.progress(bad).catch((error: unknown) => progress.push(error));
      return unit.payload === 'result' ? bad : undefined;
    },
    once: () => {},
  });
  onTestFinished(() => worker.stop());
  const ids = await queue.enqueueMany([
    { kind: 'job', payload: 'result' },
    { kind: 'job', payload: 'none' },
  ]);
  await eventually(async () => expect((await queue.get(ids[0] ?? '')).status).toBe('error'));
  expect((await queue.get(ids[0] ?? '')).error).toMatch(/the result cannot hold U\+0000 or a lone surrogate/);
  await eventually(async () => expect((await queue.get(ids[1] ?? '')).status).toBe('complete'));
  expect(progress.map(String)).toEqual(Array.from({ length: 2 }, () => expect.stringMatching(REFUSED)));
});

test('actors: fields, messages, pages, and all that a turn says', async () => {
  const seen: [string, unknown][] = [];
  const attempt = async (door: string, ask: () => unknown): Promise<void> => {
    seen.push([
      door,
      await Promise.resolve()
        .then(ask)
        .catch((error: unknown) => error),
    ]);
  };
  const bad = VALUES[2];
  const Doors = actor('doors', {
    initial: 'only',
    states: (state) => ({
      only: state({
        to: ['only'],
        run: async (a) => {
          await attempt('key', () => a.key('k', bad));
          await attempt('arguments of once', () => a.once('o', bad, () => 1));
          await attempt('result of once', () => a.once('p', 1, () => bad));
          await attempt('send', () => a.send(a.id, 'x', bad));
          await attempt('name of a message', () => a.send(a.id, 'a\0', 1));
          await attempt('enqueue', () => a.enqueue({ queue: 'q', kind: 'k', payload: bad }));
          await attempt('details of a page', () => a.page({ tag: 't', summary: 's', details: bad }));
          await attempt('summary of a page', () => a.page({ tag: 't', summary: 'a\0' }));
          await attempt('a child', () => a.create(Any, { x: bad } as never));
          return a.to('only', { x: bad } as never);
        },
      }),
    }),
  });
  const Ends = actor('ends', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.done(bad) }) }) });
  const { actors, one } = await openScene([Doors, Ends, Any]);
  const door = await actors.create(Doors, {});
  await expectRefused(
    {
      fields: (value) => actors.create(Doors, { x: value } as never),
      send: (payload) => actors.send(door, 'x', payload),
      'details of a page': (details) => actors.page({ tag: 't', summary: 's', details }),
    },
    VALUES,
  );
  await expectRefused(
    {
      key: (key) => actors.create(Doors, {}, { key }),
      'name of a message': (name) => actors.send(door, name, 1),
      'tag of a page': (tag) => actors.page({ tag, summary: 's' }),
      'summary of a page': (summary) => actors.page({ tag: 't', summary }),
      'root of a page': (root) => actors.page({ tag: 't', summary: 's', root }),
    },
    TEXTS,
  );
  expect(await actors.work(door)).toMatchObject({ kind: 'failed' });
  expect(seen).toHaveLength(9);
  for (const [name, error] of seen) expect([name, String(error)]).toEqual([name, expect.stringMatching(REFUSED)]);
  expect(await actors.history(door)).toMatchObject([
    { reason: 'created' },
    { error: expect.stringMatching(/fields.* cannot hold/) },
  ]);
  const end = await actors.create(Ends, {});
  expect(await actors.work(end)).toMatchObject({ kind: 'failed' });
  expect(await one('select count(*)::int from pawl.actor_inbox')).toBe(0);
  // None of those that were asked for; this one says that the program has a mistake.
  expect((await actors.pages()).map(({ tag }) => tag)).toEqual([`actor-mistake:${door.id}`]);
});

test('locks: names, namespaces, reasons', async () => {
  const { engine } = await openScene([Any]);
  const locks = createLocks(engine);
  onTestFinished(() => locks.stop());
  await expectRefused(
    {
      request: (name) => locks.request(name, () => 1),
      tryAcquire: (name) => locks.tryAcquire(name),
      namespace: (namespace) => createLocks(engine, { namespace }),
      reason: (reason) => locks.break('a', { reason }),
    },
    TEXTS,
  );
});

test('HTTP: as JSON has it, and numbers that no program could read', async () => {
  const house = await makeHouse();
  onTestFinished(() => house.stop());
  const visitor = house.open();
  for (const value of ['"\\u0000"', '{"a":["\\ud83d"]}', '{"\\u0000":1}', '1e400', '{"a":[-1e999]}']) {
    for (const [path, body] of [
      ['/queues/mail/jobs', `{"kind":"send","payload":${value}}`],
      [`/actors/${house.ids.actor}/messages`, `{"name":"x","payload":${value}}`],
    ] as const) {
      const answer = await visitor.ask(`/api/v1${path}`, {
        method: 'POST',
        body,
        headers: { 'content-type': 'application/json' },
      });
      expect([path, value, answer.status]).toEqual([path, value, 400]);
      expect(answer.body.error).toMatchObject({ code: 'invalid_input', field: 'payload' });
    }
  }
});

test('SQL: numbers that no program could read, since jsonb itself refuses the rest', async () => {
  const { engine, actors } = await openScene([Any]);
  await createQueue(engine, 'sql', { kinds: { job: {} } }).register();
  await actors.register();
  const call = (name: string, json: string): Promise<unknown> =>
    engine.query(statement('test.call', `select pawl.${name}($1::jsonb)`, { prepare: false }), [json]);
  for (const [name, json] of [
    ['enqueue', '{"queue":"sql","kind":"job","payload":{"a":[1,1e400]}}'],
    ['enqueue', '{"queue":"sql","kind":"job","payload":-1e309}'],
    ['actor_create', '{"type":"any","fields":{"a":1e400}}'],
    ['actor_send', '{"actor":"1","name":"x","payload":1e400}'],
  ] as const) {
    const error: unknown = await call(name, json).catch((cause: unknown) => cause);
    expect(error, name).toBeInstanceOf(InvalidInput);
    expect(error).toMatchObject({ message: expect.stringMatching(/has a number beyond 1\.8e308/) });
  }
  await call('enqueue', `{"queue":"sql","kind":"job","payload":["${'7'.repeat(400)}",1e308,1e-400]}`);
});
