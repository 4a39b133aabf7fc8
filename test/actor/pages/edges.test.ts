import * as v from 'valibot';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import {
  type ActorDefinition,
  actor,
  consoleChannel,
  createActors,
  type LooseFields,
  type PageChannel,
  type Turn,
  webhook,
} from '../../../src/actor/index.ts';
import { Delivery } from '../../../src/actor/pages/delivery.ts';
import { PostgresActorReader } from '../../../src/actor/postgres/reader.ts';
import { Conflict, InvalidInput, LeaseLost, NotFound } from '../../../src/base/errors.ts';
import { faults } from '../../../src/base/fault.ts';
import { probe } from '../../../src/base/probe.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { startProxy } from '../../support/proxy.ts';
import { openScene } from '../scene.ts';

type Hook = (a: Turn<LooseFields, 'go' | 'destroy', 'only'>) => unknown;

/** An actor whose only body is the test's. */
function make(hook: Hook, name = 'edge'): ActorDefinition<LooseFields, 'go' | 'destroy'> {
  // Bodies return what no compiler would let them.
  const run = hook as never;
  return actor(name, {
    semaphores: ['go', 'destroy'],
    initial: 'only',
    always: { destroy: 'over' },
    backoff: { kind: 'fixed', min: '10ms', jitter: 0 },
    history: 'forever' as never,
    states: (state) => ({ only: state({ to: ['only'], run }), over: state({ run }) }),
  });
}

describe('a turn that fails says why', () => {
  const circular: Record<string, unknown> = {};
  circular['self'] = circular;
  const unreadable = new Error('x');
  Object.defineProperty(unreadable, 'stack', {
    get() {
      throw new Error('no');
    },
  });
  const stackless = Object.assign(new Error('plain'), { stack: undefined });
  const thenable = {};
  Reflect.set(thenable, 'then', (_yes: unknown, no: (error: Error) => void) => no(new Error('thenable')));
  const Child = make((a) => a.done(), 'child');

  const ways: readonly (readonly [string, Hook, RegExp])[] = [
    ['a text was thrown', () => Promise.reject('just text'), /just text/],
    ['nothing was thrown', () => Promise.reject(null), /^null was thrown/],
    ['undefined was thrown', () => Promise.reject(), /^undefined was thrown/],
    ['an object was thrown', () => Promise.reject({ code: 7 }), /"code":7/],
    ['a function was thrown', () => Promise.reject(Math.max), /Function: max/],
    ['its cause is told', () => Promise.reject(new Error('outer', { cause: 'inner' })), /outer[^]*caused by: inner/],
    ['an error without a stack', () => Promise.reject(stackless), /Error: plain/],
    ['an error that cannot be read', () => Promise.reject(unreadable), /cannot be shown/],
    ['the patch is no object', (a) => a.stay(5 as never), /patch must be an object, but was 5/],
    ['the patch is circular', (a) => a.stay(circular), /cannot be written as JSON: .*circular/i],
    ['it goes nowhere', (a) => a.to(undefined as never), /no transition from "only" to state undefined/],
    ['it asks for no semaphore', (a) => (a.pos(undefined as never), a.stay()), /no semaphore of edge\d+ undefined/],
    ['its key has no name', (a) => (a.key(undefined as never), a.stay()), /option "name" for key is required/],
    [
      'its key is made of what is no JSON',
      (a) => (a.key('x', 5n), a.stay()),
      /arguments of key\("x"\) cannot be written/,
    ],
    [
      'it forgets the arguments of once',
      async (a) => (await a.once('x', Math.max, undefined as never), a.stay()),
      /"fn" for once/,
    ],
    ['it sends what is no JSON', (a) => (a.send(a.id, 'x', 5n), a.stay()), /payload of "x" cannot be written as JSON/],
    ['it sends what has no name', (a) => (a.send(a.id, ''), a.stay()), /option "name" for send/],
    [
      'its job is no JSON',
      (a) => (a.enqueue({ queue: 'q', kind: 'k', payload: 5n }), a.stay()),
      /a job cannot be written/,
    ],
    [
      'its page is no JSON',
      (a) => (a.page({ tag: 't', summary: 's', details: 5n }), a.stay()),
      /details of a page cannot/,
    ],
    ['it resolves a page without a tag', (a) => (a.resolve(''), a.stay()), /option "tag" for resolve/],
    ['its commit calls nothing', (a) => (a.atCommit(5 as never), a.stay()), /option "fn" for atCommit/],
    [
      'its child has a strange option',
      async (a) => (await a.create(Child, {}, { kye: 'x' } as object), a.stay()),
      /mean "key"/,
    ],
    ['it bears a child and ends', async (a) => (await a.create(Child, {}), a.done()), /they would be orphans/],
    ['it is given something like a promise', () => thenable, /thenable/],
  ];
  // Invariant A15.
  test(ways.map(([what]) => what).join('; '), async () => {
    const types = ways.map(([, run], n) => make(run, `edge${n}`));
    const { actors } = await openScene([...types, Child]);
    for (const [n, [what, , message]] of ways.entries()) {
      const one = await actors.create(types[n] ?? Child, {});
      expect(await actors.work(one), what).toMatchObject({ kind: 'failed' });
      expect((await actors.get(one)).error, what).toMatch(message);
    }
  });
});

test('fields that a schema makes something else of, or refuses late, fail the turn', async () => {
  const schema = v.pipeAsync(
    v.any(),
    v.checkAsync(async (value) => value.bad !== true, 'bad'),
    v.transform((value) => (value.list === true ? [] : value)),
  );
  const Odd = actor('odd', {
    fields: schema,
    initial: 'only',
    states: (state) => ({ only: state({ run: (a) => a.done() }) }),
  });
  const scene = await openScene([Odd]);
  await scene.actors.register();
  for (const [fields, message] of [
    ['{"bad":true}', /bad/],
    ['{"list":true}', /fields of an actor are an object, but were/],
  ] as const) {
    const { id } = await scene.one<{ id: string }>(`select pawl.actor_create('{"type":"odd","fields":${fields}}')`);
    expect(await scene.actors.work(id)).toMatchObject({ kind: 'failed' });
    expect((await scene.actors.get(id)).error).toMatch(message);
  }
  await expect(scene.actors.create(Odd, 5)).rejects.toThrow(/are an object; give \{\}/);
  await expect(scene.actors.create(Odd, { list: true })).rejects.toThrow(/are an object, but were/);
});

test('a body begins no more when the actor was lost while its fields were checked', async () => {
  let check = (): void => {};
  const checked = new Promise<void>((resolve) => {
    check = resolve;
  });
  let calls = 0;
  let begun = false;
  const slow = v.pipeAsync(
    v.object({}),
    v.checkAsync(async () => {
      calls += 1;
      if (calls > 1) await checked;
      return true;
    }),
  );
  const Slow = actor('slow', {
    fields: slow,
    initial: 'only',
    states: (state) => ({
      only: state({
        run: (a) => {
          begun = true;
          return a.done();
        },
      }),
    }),
  });
  const scene = await openScene([Slow]);
  await scene.actors.create(Slow, {});
  const dispatcher = await scene.run();
  await until('its fields are checked', () => calls === 2);
  dispatcher.abandon();
  check();
  await new Promise((resolve) => setImmediate(resolve));
  expect(begun).toBe(false);
});

describe('in a body', () => {
  test('guard() keeps the turn in a transaction of its own, and refuses one that is not the current one', async () => {
    const seen: unknown[] = [];
    const Edge = make(async (a) => {
      await scene.engine.transaction((tx) => a.guard(tx));
      await expect(a.guard('no transaction' as never)).rejects.toThrow(InvalidInput);
      if (a.fields['lost'])
        await scene.query('select pawl.actor_give_back_except(worker, $1) from pawl.actor_instance where id = $2', [
          [],
          a.id,
        ]);
      await scene.engine.transaction((tx) => a.guard(tx)).catch((error: unknown) => seen.push(error));
      return a.done();
    });
    const scene = await openScene([Edge]);
    expect(await scene.actors.work(await scene.actors.create(Edge, {}))).toMatchObject({ kind: 'done' });
    expect(seen).toEqual([]);
    await expect(scene.actors.work(await scene.actors.create(Edge, { lost: true }))).rejects.toThrow(LeaseLost);
    expect(seen[0]).toBeInstanceOf(LeaseLost);
  });

  test('once() without a result keeps that, pages only get worse, and are resolved with the commit', async () => {
    const Edge = make(async (a) => {
      if (a.visit === 2) return (a.resolve('tag'), a.done());
      expect(await a.once('nothing', undefined, () => undefined)).toBeNull();
      a.page({ tag: 'tag', summary: 'worse', severity: 'critical' });
      a.page({ tag: 'tag', summary: 'bad', severity: 'info' });
      expect(a.val('go')).toBe(0);
      a.decr('go');
      expect(a.val('go')).toBe(0);
      expect(() => a.pos('stop' as 'go')).toThrow(/no semaphore of edge "stop"/);
      return a.to('only');
    });
    const { actors } = await openScene([Edge]);
    const one = await actors.create(Edge, {});
    expect(await actors.work(one)).toMatchObject({ kind: 'to' });
    expect(await actors.pages({ actor: one })).toMatchObject([{ summary: 'worse', severity: 'critical' }]);
    expect(await actors.pageHtml('1')).toContain('<h1>worse</h1>');
    expect(await actors.work(one)).toMatchObject({ kind: 'done' });
    expect(await actors.pages()).toEqual([]);
    expect(await actors.pages({ resolved: true })).toHaveLength(1);
  });

  test('a child with a key that somebody has is refused, and the turn failed', async () => {
    const Edge = make(async (a) => {
      await a.create(Edge, {}, { key: 'taken' });
      return a.stay();
    });
    const { actors } = await openScene([Edge]);
    const one = await actors.create(Edge, {}, { key: 'taken' });
    expect(await actors.work(one)).toMatchObject({ kind: 'failed' });
    expect((await actors.get(one)).error).toMatch(/key "taken" exists already/);
  });

  test('being told to end again while it ends is nothing new', async () => {
    const Edge = make((a) => a.stay());
    const { actors } = await openScene([Edge]);
    const one = await actors.create(Edge, {});
    await actors.destroy(one);
    expect(await actors.work(one)).toMatchObject({ to: 'over' });
    await actors.destroy(one);
    expect(await actors.work(one)).toMatchObject({ kind: 'stay' });
    expect((await actors.get(one)).semaphores).toEqual({});
  });
});

describe('what operators ask', () => {
  test('is answered for what is there, and refused for what is not', async () => {
    const Plain = actor('plain', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.done() }) }) });
    const scene = await openScene([Plain]);
    const { actors } = scene;
    const one = await actors.create(Plain, {});
    await expect(actors.history('4711')).rejects.toThrow(NotFound);
    await expect(actors.destroy(one)).rejects.toThrow(/has no always: \{ destroy/);
    await expect(actors.waitFor(one, { state: 'only', status: 'final', timeout: '60ms' })).rejects.toThrow(
      /to be final in only; it is due/,
    );
    expect(await actors.health()).toMatchObject({ unattended: ['plain'], held: [], openPages: 0 });
    expect(actors.typeNames).toEqual(['plain']);
    expect(actors.machineDiagram(Plain)).toMatch(/^stateDiagram/);
    expect(actors.machineDiagram(Plain, 'svg')).toMatch(/^<svg/);
    const { id } = await actors.page({ tag: 'x', summary: 'odd' });
    await scene.query('update pawl.actor_page set actor = 4711');
    expect(await actors.pageHtml(id)).toContain('<h1>odd</h1>');
    expect(await actors.resolvePage({ id })).toBe(true);
    expect(() => actors.run({ types: ['plain'] }).stop()).not.toThrow();
  });
});

test('a database whose default is not read committed is worked on at read committed', async () => {
  const Edge = make((a) => (a.take('go') ? a.done() : a.hibernate()));
  const scene = await openScene([Edge]);
  await scene.query(
    `do $$ begin execute format('alter database %I set default_transaction_isolation to serializable', current_database()); end $$`,
  );
  const engine = postgres(scene.url, { max: 6 });
  const actors = createActors(engine, [Edge]);
  const dispatcher = actors.run({ poll: '50ms' });
  onTestFinished(async () => {
    await dispatcher.stop();
    await engine.stop();
  });
  const all = await Promise.all(Array.from({ length: 10 }, () => actors.create(Edge, {})));
  for (const one of all) await actors.incr(one, 'go');
  for (const one of all) await actors.waitFor(one);
});

describe('a dispatcher', () => {
  test('waits for a database that is away when it starts, and looks when it is told to', async () => {
    const Edge = make((a) => a.done());
    const scene = await openScene([Edge]);
    const proxy = await startProxy(scene.url);
    const engine = postgres(proxy.url, {
      connectTimeoutMs: 1000,
      logger: { debug() {}, info() {}, warn() {}, error() {} },
    });
    onTestFinished(async () => {
      await engine.stop();
      await proxy.stop();
    });
    proxy.refuse();
    const dispatcher = createActors(engine, [Edge]).run({ poll: '1h' });
    onTestFinished(() => dispatcher.stop());
    let errors = 0;
    dispatcher.events.on('error', () => {
      errors += 1;
    });
    await until('it could not start', () => errors > 0);
    proxy.accept();
    await dispatcher.started;
    const { id } = await scene.one<{ id: string }>(`select pawl.actor_create('{"type":"edge"}')`);
    dispatcher.wake();
    expect(await scene.actors.waitFor(id)).toMatchObject({ status: 'final' });
  });

  test('delivers more notices than it takes at once, whatever a channel throws', async () => {
    const Edge = make((a) => a.done());
    const scene = await openScene([Edge]);
    for (let n = 0; n < 25; n += 1) await scene.actors.page({ tag: `t${n}`, summary: 'x' });
    const took = new Set<string>();
    const channel: PageChannel = {
      name: 'test',
      deliver: async ({ tag }) => {
        took.add(tag);
        if (tag === 't0') await Promise.reject('not an error');
      },
    };
    const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    onTestFinished(() => written.mockRestore());
    await scene.run({ channels: [channel, consoleChannel()] });
    await until('all were tried', () => took.size === 25 && written.mock.calls.length >= 25);
    await until('the refusal is kept', () =>
      scene.one(`select count(*)::int = 1 from pawl.actor_notice where error = 'test: not an error'`),
    );
  });
});

describe('a channel that hangs', () => {
  const silent: PageChannel = { name: 'silent', deliver: () => new Promise(() => {}) };

  // Invariant A23.
  test('keeps no other channel waiting, nor another page, nor the end of its dispatcher', async () => {
    const scene = await openScene([make((a) => a.done())]);
    const told: string[] = [];
    const note: PageChannel = { name: 'note', deliver: async ({ tag }) => void told.push(tag) };
    const dispatcher = await scene.run({ channels: [silent, note] });
    await scene.actors.page({ tag: 'first', summary: 'x' });
    await until('the other channel has it', () => told.length === 1);
    await scene.actors.page({ tag: 'second', summary: 'x' });
    await until('the next page is delivered', () => told.length === 2);
    await dispatcher.stop();
    const notices = await scene.query(
      `select delivered, done_at is null as open, error from pawl.actor_notice order by id`,
    );
    const left = { delivered: ['note'], open: true, error: expect.stringMatching(/^silent: /) };
    expect(notices).toEqual([left, left]);
  });

  test('is given up in time, and tried again; more than it has taken wait for it', async () => {
    const scene = await openScene([make((a) => a.done())]);
    for (let n = 0; n < 25; n += 1) await scene.actors.page({ tag: `t${n}`, summary: 'x' });
    const reader = new PostgresActorReader(scene.engine);
    const delivery = new Delivery(reader, [silent], () => {}, 20);
    onTestFinished(() => delivery.stop());
    await until('all were given up', () =>
      scene.one(
        `select count(*)::int = 25 from pawl.actor_notice where error = 'silent: it took longer than 20ms' and next_at > clock_timestamp()`,
      ),
    );
  });

  test('is not to be mistaken for another one: two with one name are refused', () => {
    const actors = createActors(postgres('postgres://127.0.0.1:1/none'), [make((a) => a.done())]);
    const hooks = ['a', 'b'].map((path) => webhook(`https://hooks.example/${path}`));
    expect(() => actors.run({ channels: hooks })).toThrow(/two channels named "webhook hooks\.example"/);
    expect(() => webhook('https://hooks.example', { nmae: 'x' } as object)).toThrow(/did you mean "name"/);
  });
});

describe('a dispatcher goes on', () => {
  // Invariant A16.
  test('when fields are of a newer version: it holds the actor, and a turn by hand is refused, until a program knows them', async () => {
    const Edge = make((a) => a.done());
    const scene = await openScene([Edge]);
    const { id } = await scene.actors.create(Edge, {});
    await scene.query('update pawl.actor_instance set version = 2');
    await expect(scene.actors.work(id)).rejects.toThrow(
      /has fields of version 2, but no running program knows more than/,
    );
    await scene.query('update pawl.actor_instance set wake_at = clock_timestamp(), held = null');
    const dispatcher = await scene.run();
    await until('it is held', async () => (await scene.actors.get(id)).status === 'held');
    await dispatcher.stop();
    await scene.query('update pawl.actor_instance set version = 1');
    await scene.run();
    expect(await scene.actors.waitFor(id)).toMatchObject({ status: 'final' });
  });

  test('when nothing of a turn can be written, not even that it failed', async () => {
    const Edge = make((a) => a.done());
    const scene = await openScene([Edge], { logger: recordLog() });
    await scene.actors.register();
    await scene.query(`create function refuse() returns trigger language plpgsql as $$ begin raise 'refused'; end $$`);
    await scene.query(`create trigger refuse before update on pawl.actor_instance for each row
      when (old.worker is not null and new.worker is null) execute function refuse()`);
    const all = [await scene.actors.create(Edge, {}), await scene.actors.create(Edge, {})];
    const dispatcher = await scene.run({ poll: '20ms' });
    let errors = 0;
    dispatcher.events.on('error', () => {
      errors += 1;
    });
    // Both at once, each alone, each as failed, and what it believes to hold itself.
    await until('all was tried', () => errors >= 6);
    await scene.query('drop trigger refuse on pawl.actor_instance');
    for (const one of all) expect(await scene.actors.waitFor(one)).toMatchObject({ status: 'final' });
  });

  test('when it has registered anew by the time that a heartbeat of its last life is refused', async () => {
    const Edge = make((a) => a.done());
    const scene = await openScene([Edge]);
    let [beats, go] = [0, (): void => {}];
    const gone = new Promise<void>((resolve) => {
      go = resolve;
    });
    const beaten = probe.watch('actor.beat');
    const disarm = faults.arm('actor.before_beat', () => {
      beats += 1;
      return gone;
    });
    onTestFinished(() => {
      disarm();
      beaten.stop();
    });
    // Long enough for all of this to happen between its first beat and its end.
    const dispatcher = await scene.run({ lease: '6s', poll: '20ms' });
    let lost = 0;
    dispatcher.events.on('lost', () => {
      lost += 1;
    });
    await until('it is about to beat', () => beats > 0);
    await scene.query('delete from pawl.actor_worker');
    await until('a claim was refused', () => lost > 0);
    await until('it has registered anew', () => scene.one('select count(*)::int from pawl.actor_worker'));
    go();
    await beaten.next();
    expect(lost).toBe(1);
  });
});

test('two turns by hand at once share a heartbeat, and a lost goodbye does not matter', async () => {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const Edge = make(async (a) => {
    await opened;
    return a.done();
  });
  const scene = await openScene([Edge]);
  const proxy = await startProxy(scene.url);
  const engine = postgres(proxy.url, { prepare: false, logger: { debug() {}, info() {}, warn() {}, error() {} } });
  onTestFinished(async () => {
    await engine.stop();
    await proxy.stop();
  });
  const actors = createActors(engine, [Edge]);
  const all = [await actors.create(Edge, {}), await actors.create(Edge, {})];
  const worked = all.map((one) => actors.work(one));
  await until('both run', () => scene.one(`select count(*)::int = 2 from pawl.actor where status = 'running'`));
  proxy.loseRequest('actor.end_worker');
  open();
  for (const one of worked) expect(await one).toMatchObject({ kind: 'done' });
  await expect(scene.actors.work(all[0]?.id ?? '')).rejects.toThrow(Conflict);
  expect(() => actors.run({ channels: [5 as never] })).toThrow(InvalidInput);
});
