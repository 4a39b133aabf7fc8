import { describe, expect, test } from 'vitest';
import { actor } from '../../src/actor/index.ts';
import { createQueue } from '../../src/queue/index.ts';
import { until } from '../support/eventually.ts';
import { openScene } from './scene.ts';

const Child = actor('child', {
  semaphores: ['finish', 'destroy'],
  initial: 'working',
  always: { destroy: 'destroying' },
  states: (state) => ({
    working: state({ run: (a) => (a.take('finish') ? a.done(a.fields['n']) : a.hibernate()) }),
    destroying: state({ run: (a) => a.done('destroyed') }),
  }),
});

const Parent = actor('parent', {
  semaphores: ['destroy', 'check'],
  initial: 'creating',
  always: { destroy: 'destroying' },
  states: (state) => ({
    creating: state({
      to: ['waiting'],
      run: async (a) => {
        const ids: string[] = [];
        for (let n = 0; n < 3; n += 1) ids.push((await a.create(Child, { n })).id);
        return a.to('waiting', { ids, turns: 0 });
      },
    }),
    waiting: state({
      to: ['finished'],
      run: async (a) => {
        const turns = a.fields['turns'] + 1;
        if (a.openChildren > 0) return a.hibernate({ turns });
        const results = (await a.children()).map(({ result }) => result);
        return a.to('finished', { turns, results });
      },
    }),
    finished: state({ run: (a) => a.hibernate() }),
    destroying: state({
      run: async (a) => ((await a.incrChildren()) > 0 ? a.hibernate() : a.done()),
    }),
  }),
});

describe('parents and children', () => {
  // Invariant A20.
  test('a parent is woken once, when the last child is final, however they end together', async () => {
    const scene = await openScene([Parent, Child]);
    const { actors } = scene;
    await scene.run({ concurrency: 8 });
    await scene.run({ concurrency: 8 });
    const parents = await Promise.all(Array.from({ length: 10 }, () => actors.create(Parent, {})));
    for (const parent of parents) {
      await until('it waits', async () => {
        const { state, status } = await actors.get(parent);
        return state === 'waiting' && status === 'hibernating';
      });
    }
    const turns = new Map<string, number>();
    for (const { id } of parents) turns.set(id, ((await actors.get(id)).fields as { turns: number }).turns);
    const children = await actors.list({ type: 'child' });
    expect(children).toHaveLength(30);
    await Promise.all(children.map(({ id }) => actors.incr(id, 'finish')));
    for (const { id } of parents) {
      await until('it is finished', async () => (await actors.get(id)).state === 'finished');
      const { fields } = await actors.get(id);
      expect(fields).toMatchObject({ results: [0, 1, 2], turns: (turns.get(id) ?? 0) + 1 });
      expect((await actors.get(id)).openChildren).toBe(0);
    }
  });

  // Invariant A21.
  test('destroying works from any state and leaves no orphan', async () => {
    const scene = await openScene([Parent, Child]);
    const { actors } = scene;
    await scene.run();
    for (const state of ['creating', 'waiting', 'finished', 'destroying']) {
      const parent = await actors.create(Parent, {});
      if (state !== 'creating') await until('it waits', async () => (await actors.get(parent)).state === 'waiting');
      for (const { id } of state === 'finished' ? await actors.list({ parent }) : []) await actors.incr(id, 'finish');
      if (state === 'finished') await until('it is', async () => (await actors.get(parent)).state === state);
      await scene.query(
        `select pawl.page_open(json_build_object('tag', $1::text, 'severity', 2, 'summary', 'odd', 'actor', $1::bigint))`,
        [parent.id],
      );
      if (state === 'destroying') await actors.destroy(parent);
      await actors.destroy(parent);
      await until('it is final', async () => (await actors.get(parent)).status === 'final');
    }
    expect(await actors.list()).toEqual([]);
    expect(await scene.one('select count(*)::int from pawl.semaphore')).toBe(0);
    expect(await actors.pages()).toEqual([]);
    await until(
      'nothing is in an inbox',
      async () => (await scene.one('select count(*)::int from pawl.actor_inbox')) === 0,
    );
  });

  test('an actor with children cannot end, and its turn says so', async () => {
    const Hasty = actor('hasty', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.done() }) }) });
    const scene = await openScene([Hasty, Child]);
    const parent = await scene.actors.create(Hasty, {});
    const child = await scene.actors.create(Child, {}, { parent });
    await scene.actors.work(parent);
    expect(await scene.actors.get(parent)).toMatchObject({ status: 'backing off', openChildren: 1 });
    expect((await scene.actors.get(parent)).error).toMatch(/children that are not final/);
    await scene.actors.incr(child, 'finish');
    await scene.actors.work(child);
    await scene.actors.work(parent);
    expect(await scene.actors.get(parent)).toMatchObject({ status: 'final' });
    await expect(scene.actors.create(Child, {}, { parent })).rejects.toThrow(/is final/);
    await expect(scene.actors.create(Child, {}, { parent: '4711' })).rejects.toThrow(
      /there is no actor \d+, so it cannot be the parent/,
    );
  });

  test('a child being created keeps its parent from ending', async () => {
    const Hasty = actor('hasty', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.done() }) }) });
    const scene = await openScene([Hasty, Child]);
    const parent = await scene.actors.create(Hasty, {});
    await scene.engine.transaction(async (tx) => {
      await scene.actors.create(Child, {}, { parent, tx });
      await scene.actors.work(parent);
    });
    expect(await scene.actors.get(parent)).toMatchObject({ status: 'backing off' });
  });

  test('one actor of a type and key, ever', async () => {
    const { actors } = await openScene([Child]);
    const first = await actors.create(Child, { n: 1 }, { key: 'eu-1' });
    const again = await actors.create(Child, { n: 2 }, { key: 'eu-1' });
    expect(again).toMatchObject({ id: first.id, created: false });
    expect(await actors.find(Child, 'eu-1')).toMatchObject({ id: first.id });
    expect(await actors.find(Child, 'eu-2')).toBeUndefined();
  });
});

describe('a commit', () => {
  const Busy = actor('busy', {
    semaphores: ['go'],
    initial: 'only',
    states: (state) => ({
      only: state({
        to: ['after'],
        run: async (a) => {
          await a.create(Child, { n: 1 });
          a.incr(a.fields['other'], 'finish');
          a.send(a.fields['other'], 'hello', { from: a.id });
          a.enqueue({ queue: a.fields['queue'], kind: 'send', payload: { actor: a.id } });
          a.page({ tag: `busy:${a.id}`, summary: 'look', severity: 'warning' });
          a.atCommit(async (tx) => {
            await tx.client.query({ text: 'insert into note values ($1)', values: [a.id] });
            if (a.fields['fails'] === true) throw new Error('not this time');
          });
          return a.to('after', { seen: true });
        },
      }),
      after: state({ run: (a) => a.hibernate() }),
    }),
  });

  // Invariant A17.
  test('writes the outcome and everything the turn asked for together, or nothing', async () => {
    const scene = await openScene([Busy, Child]);
    const { actors } = scene;
    const queue = createQueue(scene.engine, 'mail', { kinds: { send: {} } });
    await queue.register();
    await scene.query('create table note (id bigint)');
    const other = await actors.create(Child, {});
    const count = async (): Promise<unknown> =>
      scene.one(`select json_build_object('children', (select count(*) from pawl.actor where parent is not null),
        'notes', (select count(*) from note), 'jobs', (select count(*) from pawl.queue_job), 'pages', (select count(*) from pawl.page),
        'messages', (select count(*) from pawl.actor_message), 'raised', (select coalesce(sum(val), 0) from pawl.semaphore))`);
    for (const fields of [{ queue: 'none' }, { queue: 'mail', fails: true }]) {
      const bad = await actors.create(Busy, { other: other.id, ...fields });
      expect(await actors.work(bad)).toMatchObject({ kind: 'failed' });
      expect(await actors.get(bad)).toMatchObject({ state: 'only', status: 'backing off' });
      expect(await count()).toEqual({ children: 0, notes: 0, jobs: 0, pages: 0, messages: 0, raised: 0 });
    }
    const good = await actors.create(Busy, { other: other.id, queue: 'mail' });
    expect(await actors.work(good)).toMatchObject({ kind: 'to', to: 'after' });
    expect(await count()).toEqual({ children: 1, notes: 1, jobs: 1, pages: 1, messages: 1, raised: 1 });
    expect(await actors.get(good)).toMatchObject({ fields: { seen: true }, openChildren: 1 });
  });

  test('of a dispatcher does the same, and a refusal disturbs no neighbour', async () => {
    const scene = await openScene([Busy, Child]);
    const { actors } = scene;
    await createQueue(scene.engine, 'mail', { kinds: { send: {} } }).register();
    await scene.query('create table note (id bigint)');
    const other = await actors.create(Child, {});
    const all = await Promise.all(
      ['mail', 'none', 'mail'].map((queue) => actors.create(Busy, { other: other.id, queue })),
    );
    await scene.run();
    await until('the good ones are through', async () => (await scene.one('select count(*)::int from note')) === 2);
    expect(await actors.get(all[1]?.id ?? '')).toMatchObject({ state: 'only' });
    await until('the bad one is told', async () => /none/.test((await actors.get(all[1]?.id ?? '')).error ?? ''));
  });
});

test('messages wake an actor, and are read once, when the turn is committed', async () => {
  const heard: unknown[] = [];
  let fails = true;
  const Listener = actor('listener', {
    initial: 'only',
    backoff: { min: 10, max: 20 },
    states: (state) => ({
      only: state({
        run: async (a) => {
          const messages = await a.receive();
          if (messages.length > 0 && fails) {
            fails = false;
            throw new Error('once');
          }
          heard.push(...messages.map(({ name, payload }) => [name, payload]));
          return a.hibernate();
        },
      }),
    }),
  });
  const scene = await openScene([Listener]);
  const one = await scene.actors.create(Listener, {});
  await scene.run();
  await until('it hibernates', async () => (await scene.actors.get(one)).status === 'hibernating');
  await scene.actors.send(one, 'first', { n: 1, odd: '\\0' });
  await scene.query(`select pawl.actor_send('{"actor":${one.id},"name":"second","payload":[2]}')`);
  await until('both were heard', () => heard.length === 2);
  expect(heard).toEqual([
    ['first', { n: 1, odd: '\\0' }],
    ['second', [2]],
  ]);
  await until('none is left', async () => (await scene.actors.get(one)).messages === 0);
  await expect(scene.actors.send('4711', 'x')).rejects.toThrow(/no actor 4711/);
});

// Invariant A10.
test('more messages than a turn is given wake the actor again, until it has read them all', async () => {
  const given: number[] = [];
  const Reader = actor('reader', {
    initial: 'only',
    states: (state) => ({
      only: state({
        run: async (a) => {
          given.push((await a.receive()).length);
          return a.hibernate();
        },
      }),
    }),
  });
  const scene = await openScene([Reader]);
  const one = await scene.actors.create(Reader, {});
  await scene.query(
    `select count(pawl.actor_send(jsonb_build_object('actor', $1::text, 'name', 'n', 'payload', n))) from generate_series(1, 2000) n`,
    [one.id],
  );
  await scene.run();
  await until(
    'it has read all',
    async () => given.length > 1 && (await scene.actors.get(one)).status === 'hibernating',
  );
  // Nothing is left, so nothing wakes it any more.
  expect(given).toEqual([1000, 1000]);
  expect(await scene.actors.get(one)).toMatchObject({ messages: 0 });
});
