import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import pg from 'pg';
import * as v from 'valibot';
import { describe, expect, onTestFinished, test } from 'vitest';
import {
  actor,
  consoleChannel,
  createActorAdmin,
  createActors,
  type PageNotice,
  webhook,
} from '../../../src/actor/index.ts';
import { Conflict, InvalidInput, NotFound } from '../../../src/base/errors.ts';
import { probe } from '../../../src/base/probe.ts';
import { aborted, until } from '../../support/eventually.ts';
import { openScene } from '../scene.ts';

const Sleeper = actor('sleeper', {
  semaphores: ['go', 'destroy'],
  initial: 'asleep',
  always: { destroy: 'gone' },
  states: (state) => ({
    asleep: state({ to: ['awake'], run: (a) => (a.take('go') ? a.to('awake') : a.hibernate()) }),
    awake: state({ to: ['asleep'], run: (a) => a.to('asleep', { times: (a.fields['times'] ?? 0) + 1 }) }),
    gone: state({ run: (a) => a.done() }),
  }),
});

describe('a pause', () => {
  // Invariant A29.
  test.each(['actor', 'type', 'state'] as const)(
    'of a whole %s lets no turn begin, keeps what comes, and loses nothing',
    async (what) => {
      const scene = await openScene([Sleeper]);
      const { actors } = scene;
      const one = await actors.create(Sleeper, {});
      await scene.run();
      await until('it hibernates', async () => (await actors.get(one)).status === 'hibernating');
      const target = { actor: one, type: { type: 'sleeper' }, state: { type: 'sleeper', state: 'asleep' } }[what];
      await actors.pause(target);
      for (let n = 0; n < 3; n += 1) await actors.incr(one, 'go');
      const other = await actors.create(Sleeper, {});
      if (what === 'actor')
        await until('another one runs', async () => (await actors.get(other)).status === 'hibernating');
      else await until('it was seen', async () => what === 'type' || (await actors.get(one)).held !== null);
      expect(await actors.get(one)).toMatchObject({ state: 'asleep', semaphores: { go: 3 } });
      expect((await actors.explain(one)).reasons.join()).toMatch(/paused since/);
      expect((await actors.explain(one)).advice.join()).toMatch(/pawl actor resume/);
      await actors.resume(target);
      await until('it went on', async () => {
        const { fields, status } = await actors.get(one);
        return status === 'hibernating' && (fields as { times?: number }).times === 1;
      });
      expect(await actors.get(one)).toMatchObject({ semaphores: {} });
    },
  );

  test('does not stop a turn by hand', async () => {
    const { actors } = await openScene([Sleeper]);
    const one = await actors.create(Sleeper, {});
    await actors.pause(one);
    await actors.incr(one, 'go');
    expect(await actors.work(one)).toMatchObject({ to: 'awake' });
    expect(await actors.get(one)).toMatchObject({ status: 'paused' });
    await expect(actors.pause({ type: 'sleper' })).rejects.toThrow(/did you mean "sleeper"/);
    await expect(actors.pause({ type: 'sleeper', state: 'awoke' })).rejects.toThrow(/did you mean "awake"/);
    await expect(actors.pause('4711')).rejects.toThrow(NotFound);
  });
});

describe('a program that does not know', () => {
  const Old = actor('thing', {
    fields: v.object({ size: v.number() }),
    initial: 'one',
    states: (state) => ({ one: state({ run: (a) => a.hibernate() }) }),
  });
  const New = actor('thing', {
    fields: v.object({ width: v.number() }),
    version: 2,
    migrate: (fields) => ({ width: fields['size'] }),
    initial: 'one',
    states: (state) => ({
      one: state({ to: ['two'], run: (a) => a.to('two') }),
      two: state({ run: (a) => a.hibernate() }),
    }),
  });

  // Invariant A16.
  test('a state, or newer fields, parks and pages; the one that does lets it go; old fields are migrated', async () => {
    const scene = await openScene([Old]);
    const { actors, engine } = scene;
    const newer = createActors(engine, [New]);
    const one = await actors.create(Old, { size: 3 });
    expect(await newer.work(one)).toMatchObject({ to: 'two' });
    expect(await newer.get(one)).toMatchObject({ fields: { width: 3 }, version: 2, state: 'two' });
    const old = await scene.run();
    await until('it is held', async () => (await actors.get(one)).status === 'held');
    expect((await actors.explain(one)).reasons.join()).toMatch(/no running program knows/);
    expect(await actors.pages()).toMatchObject([{ severity: 'error', status: 'open', actor: one.id }]);
    await expect(actors.work(one)).rejects.toThrow(Conflict);
    await old.stop();
    const dispatcher = newer.run({ poll: '100ms' });
    onTestFinished(() => dispatcher.stop());
    await until('it runs', async () => (await actors.get(one)).status === 'hibernating');
    expect(await actors.pages()).toEqual([]);
  });

  /** As a worker of the program before does: finds that no worker knows the state of the actor. */
  const HOLD = `
    with claimed as (update pawl.actor_instance a set worker = -1, wake_at = clock_timestamp() where a.id = $1 returning a.*)
    select pawl.actor_report_unknown(json_build_object('actor', c.id, 'epoch', c.epoch, 'worker', -1, 'type', c.type, 'state', c.state,
      'version', c.version, 'reason', 'no running program knows it')) from claimed c`;

  // Invariant A16.
  test('lets go actors that were held while its worker was declared dead, as soon as that is listed anew', async () => {
    const scene = await openScene([New]);
    const { actors } = scene;
    const one = await actors.create(New, { width: 3 });
    await scene.run({ lease: '1s' });
    await actors.waitFor(one, { state: 'two', status: 'hibernating' });
    await scene.query('delete from pawl.actor_worker');
    await scene.query(HOLD, [one.id]);
    await until('it is let go', async () => (await actors.get(one)).status === 'hibernating');
    expect(await actors.pages()).toEqual([]);
  });

  // Invariant A16.
  test('lets go what somebody is just about to hold while it starts', async () => {
    const scene = await openScene([New]);
    const { actors } = scene;
    const one = await actors.create(New, { width: 3 });
    await actors.work(one);
    const holding = new pg.Client(scene.url);
    await holding.connect();
    onTestFinished(() => holding.end());
    await holding.query('begin');
    await holding.query(HOLD, [one.id]);
    const dispatcher = actors.run({ poll: '100ms' });
    onTestFinished(() => dispatcher.stop());
    await until('it is listed', () => scene.one('select count(*) > 0 from pawl.actor_worker'));
    await holding.query('commit');
    await until('it is let go', async () => (await actors.get(one)).status === 'hibernating');
  });
});

describe('a body', () => {
  test('whose fields are refused, or that returns nothing, keeps the old row and has failed', async () => {
    const Strict = actor('strict', {
      fields: v.object({ mode: v.string(), n: v.number() }),
      initial: 'only',
      states: {
        only: {
          options: {
            run: (a: {
              fields: { mode: string };
              stay: (patch?: unknown) => unknown;
              to: (name: string) => unknown;
              done: (r?: unknown) => unknown;
              nap: (d: string) => unknown;
            }) => {
              if (a.fields.mode === 'refused') return a.stay({ n: 'one' });
              if (a.fields.mode === 'nothing') return undefined;
              if (a.fields.mode === 'undeclared') return a.to('elsewhere');
              if (a.fields.mode === 'result') return a.done({ big: 1n });
              if (a.fields.mode === 'nap') return a.nap('soon');
              return { kind: 'done' };
            },
          },
        },
      },
    } as never);
    const { actors } = await openScene([Strict as never]);
    for (const [mode, message] of [
      ['refused', /fields was refused by its schema; fields\.n/],
      ['nothing', /must return a\.to\(state\), a\.stay\(\).*but gave nothing/],
      ['undeclared', /no transition from "only" to state "elsewhere"/],
      ['forged', /must return/],
      ['result', /cannot be written as JSON/],
      ['nap', /duration/],
    ] as const) {
      const one = await actors.create(Strict as never, { mode, n: 1 } as never);
      expect(await actors.work(one)).toMatchObject({ kind: 'failed' });
      const record = await actors.get(one);
      expect(record).toMatchObject({ fields: { mode, n: 1 }, state: 'only', attempt: 1, status: 'backing off' });
      expect(record.error).toMatch(message);
    }
  });

  // Invariant A18.
  test('that takes too long is told to end, and given up; its neighbours are not disturbed', async () => {
    let ended = 0;
    const Slow = actor('slow', {
      initial: 'only',
      backoff: { kind: 'fixed', min: '1h' },
      states: (state) => ({
        only: state({
          timeout: '50ms',
          run: async (a) => {
            if (a.fields['fast'] === true) return a.done();
            await aborted(a.signal);
            ended += 1;
            throw a.signal.reason;
          },
        }),
      }),
    });
    const scene = await openScene([Slow]);
    const slow = await scene.actors.create(Slow, {});
    const fast = await scene.actors.create(Slow, { fast: true });
    await scene.run();
    await until('the fast one is final', async () => (await scene.actors.get(fast)).status === 'final');
    await until('the slow one backs off', async () => (await scene.actors.get(slow)).status === 'backing off');
    expect(ended).toBe(1);
    expect((await scene.actors.history(slow)).map(({ reason }) => reason)).toEqual(['created', 'timed out']);
  });

  // Invariant A19.
  test('has keys that are the same for every try of a visit, and others on the next; once() runs its effect once', async () => {
    const keys: string[] = [];
    let effects = 0;
    const Maker = actor('maker', {
      initial: 'make',
      backoff: { min: 1, max: 1 },
      states: (state) => ({
        make: state({
          to: ['make', 'end'],
          run: async (a) => {
            keys.push(a.key('vm'));
            expect(a.key('vm', { size: 2 })).not.toBe(a.key('vm'));
            const made = await a.once('vm', { size: 1 }, async (key) => {
              effects += 1;
              return { key };
            });
            if (a.attempt === 1) throw new Error('after the effect');
            return keys.length < 4 ? a.to('make') : a.to('end', { made });
          },
        }),
        end: state({ run: (a) => a.done() }),
      }),
    });
    const { actors } = await openScene([Maker]);
    const one = await actors.create(Maker, {});
    for (let n = 0; n < 4; n += 1) await actors.work(one);
    expect(effects).toBe(2);
    expect([keys[0], keys[2]]).toEqual([keys[1], keys[3]]);
    expect(keys[0]).not.toBe(keys[2]);
  });

  test('of a state with hold: transaction writes in the transaction that commits the turn', async () => {
    const Ledger = actor('ledger', {
      initial: 'book',
      backoff: { min: 1, max: 1 },
      states: (state) => ({
        book: state({
          hold: 'transaction',
          to: ['booked'],
          run: async (a) => {
            await a.tx.client.query({ text: 'insert into booking values ($1)', values: [a.id] });
            if (a.attempt === 1) throw new Error('once more');
            return a.to('booked');
          },
        }),
        booked: state({
          run: async (a) => {
            void a.tx;
            return a.done();
          },
        }),
      }),
    });
    const scene = await openScene([Ledger]);
    await scene.query('create table booking (id bigint)');
    const one = await scene.actors.create(Ledger, {});
    expect(await scene.actors.work(one)).toMatchObject({ kind: 'failed' });
    expect(await scene.one('select count(*)::int from booking')).toBe(0);
    await scene.run();
    await until('it is booked', async () => (await scene.actors.get(one)).state === 'booked');
    expect(await scene.one('select count(*)::int from booking')).toBe(1);
    await until('it failed', async () => (await scene.actors.get(one)).error !== null);
    expect((await scene.actors.get(one)).error).toMatch(/has no transaction while it runs/);
  });

  test('with hold: transaction that fails, that is refused, or that ends with children, leaves nothing of what it wrote', async () => {
    const Book = actor('book', {
      semaphores: ['go'],
      initial: 'only',
      backoff: { min: '10ms', max: '20ms' },
      states: (state) => ({
        only: state({
          hold: 'transaction',
          run: async (a) => {
            await a.tx.client.query({ text: 'insert into booking values ($1)', values: [a.fields['mode']] });
            if (a.fields['mode'] === 'throws') throw new Error('no');
            if (a.fields['mode'] === 'breaks') await a.tx.client.query({ text: 'select 1 / 0' }).catch(() => {});
            if (a.fields['mode'] === 'once') await a.once('x', 1, () => 1);
            if (a.fields['mode'] === 'job') a.enqueue({ queue: 'none', kind: 'x' });
            return a.done();
          },
        }),
      }),
    });
    const scene = await openScene([Book, Sleeper]);
    const { actors } = scene;
    await scene.query('create table booking (mode text)');
    const parent = await actors.create(Book, { mode: 'parent' });
    await actors.create(Sleeper, {}, { parent });
    const why = { throws: /no/, breaks: /caught|aborted/, once: /is not for hold/, job: /none/, parent: /children/ };
    for (const mode of ['throws', 'breaks', 'once', 'job', 'parent'] as const) {
      const one = mode === 'parent' ? parent : await actors.create(Book, { mode });
      expect(await actors.work(one), mode).toMatchObject({
        kind: 'failed',
        error: { message: expect.stringMatching(why[mode]) },
      });
      expect(await actors.get(one), mode).toMatchObject({ attempt: 1, state: 'only' });
    }
    expect(await scene.one('select count(*)::int from booking')).toBe(0);
    expect(() => actors.run({ concurrency: 11 })).toThrow(/needs 13 connections, since state "only" of book has hold/);
    const failed: string[] = [];
    (await scene.run({ concurrency: 10 })).events.on('failed', ({ actor: id }) => failed.push(id));
    await until('all have failed in a dispatcher', () => new Set(failed).size === 5);
    expect(await scene.one('select count(*)::int from booking')).toBe(0);
  });

  test('that ends its actor while it has children is told as failed, with its effects', async () => {
    const Hasty = actor('hasty', {
      initial: 'only',
      states: (state) => ({
        only: state({
          run: (a) => {
            if (a.fields['pages'] === true) a.page({ tag: 'bye', summary: 'it ends' });
            return a.done();
          },
        }),
      }),
    });
    const scene = await openScene([Hasty, Sleeper]);
    const { actors } = scene;
    const all = [await actors.create(Hasty, {}), await actors.create(Hasty, { pages: true })];
    for (const parent of all) await actors.create(Sleeper, {}, { parent });
    const dispatcher = actors.run();
    onTestFinished(() => dispatcher.stop());
    const told: string[] = [];
    dispatcher.events.on('failed', ({ actor: id, error }) => /children/.test(String(error)) && told.push(id));
    await until('both are told', () => new Set(told).size === 2);
    expect(await actors.pages()).toEqual([]);
    for (const parent of all) expect(await actors.work(parent)).toMatchObject({ kind: 'failed' });
  });

  test('whose row is locked wakes no worker again and again while something waits in its inbox', async () => {
    const scene = await openScene([Sleeper]);
    const { actors } = scene;
    const one = await actors.create(Sleeper, {});
    await scene.run({ poll: '100ms' });
    await until('it hibernates', async () => (await actors.get(one)).status === 'hibernating');
    using looks = probe.watch('actor.claimed');
    await scene.engine.transaction(async (tx) => {
      await tx.client.query({ text: `select from pawl.actor_instance where id = ${one.id} for update` });
      await actors.incr(one, 'go');
      const before = looks.hits.length;
      await new Promise((resolve) => setTimeout(resolve, 500));
      expect(looks.hits.length - before).toBeLessThan(25);
    });
    await until('it ran', async () => (await actors.get(one)).visit === 3);
  });

  // Invariants A25, A27.
  test('holds neither a connection nor a transaction while it runs', async () => {
    let release = (): void => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    const Waiter = actor('waiter', {
      initial: 'only',
      states: (state) => ({
        only: state({
          run: async (a) => {
            await released;
            return a.done();
          },
        }),
      }),
    });
    const scene = await openScene([Waiter], { max: 2 });
    await scene
      .query(`select count(pawl.actor_create('{"type":"waiter"}')) from generate_series(1, 200)`)
      .catch(() => {});
    await scene.actors.register();
    await scene.query(`select count(pawl.actor_create('{"type":"waiter"}')) from generate_series(1, 200)`);
    await scene.run({ concurrency: 200 });
    await until(
      'all run',
      async () => (await scene.one(`select count(*)::int from pawl.actor where status = 'running'`)) === 200,
    );
    expect(
      await scene.one(
        `select count(*)::int from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'`,
      ),
    ).toBe(0);
    release();
    await until(
      'all are final',
      async () => (await scene.one(`select count(*)::int from pawl.actor where status = 'final'`)) === 200,
    );
  });
});

describe('a deadline', () => {
  // Invariant A22.
  test('opens one page, which is resolved when the state is left; it survives hibernation', async () => {
    const Late = actor('late', {
      semaphores: ['go'],
      initial: 'waiting',
      states: (state) => ({
        waiting: state({
          to: ['through'],
          deadline: '1h',
          run: (a) => (a.take('go') ? a.to('through') : a.hibernate()),
        }),
        through: state({ run: (a) => a.hibernate() }),
      }),
    });
    const scene = await openScene([Late]);
    const one = await scene.actors.create(Late, {});
    await scene.actors.work(one);
    await scene.query(`update pawl.actor_instance set deadline_at = deadline_at - interval '1 hour'`);
    await scene.run();
    await scene.run();
    const page = await until('it is paged', async () => (await scene.actors.pages())[0]);
    expect(page).toMatchObject({ tag: `actor-deadline:${one.id}`, severity: 'error', count: 1, actor: one.id });
    expect(page.summary).toMatch(/late \d+ is in "waiting" since .*longer than its deadline/);
    await scene.actors.incr(one, 'go');
    await until('it is resolved', async () => (await scene.actors.pages()).length === 0);
    expect(await scene.actors.pages({ resolved: true })).toHaveLength(1);
  });
});

describe('pages', () => {
  // Invariant A23.
  test('one is open per tag, however many ask at once; it only gets worse; resolving it twice does nothing', async () => {
    const { actors } = await openScene([Sleeper]);
    const answers = await Promise.all(
      Array.from({ length: 100 }, () => actors.page({ tag: 'disk', summary: 'full', severity: 'warning' })),
    );
    expect(new Set(answers.map(({ id }) => id)).size).toBe(1);
    expect(answers.filter(({ news }) => news === 'opened')).toHaveLength(1);
    expect(await actors.page({ tag: 'disk', summary: 'fuller', severity: 'critical' })).toMatchObject({
      news: 'escalated',
    });
    expect(await actors.page({ tag: 'disk', summary: 'less', severity: 'info' })).toMatchObject({ news: 'none' });
    const [page] = await actors.pages();
    expect(page).toMatchObject({ severity: 'critical', count: 102, status: 'open' });
    expect(await actors.ackPage(page?.id ?? '', 'ann')).toBe(true);
    expect(await actors.getPage(page?.id ?? '')).toMatchObject({ status: 'acked', ackedBy: 'ann' });
    expect(await actors.resolvePage({ tag: 'disk' })).toBe(true);
    expect(await actors.resolvePage({ tag: 'disk' })).toBe(false);
    expect(await actors.resolvePage({ id: page?.id ?? '' })).toBe(false);
    expect(await actors.ackPage(page?.id ?? '')).toBe(false);
    expect(await actors.page({ tag: 'disk', summary: 'again' })).toMatchObject({ news: 'opened' });
    await expect(actors.page({ tag: 'x', summary: 'y', severity: 'bad' as 'info' })).rejects.toThrow(InvalidInput);
    await expect(actors.getPage('4711')).rejects.toThrow(NotFound);
    await expect(actors.getPage('seven')).rejects.toThrow(InvalidInput);
  });

  test('of an actor are resolved when it is final, except those that its last turn opens', async () => {
    const Ends = actor('ends', {
      initial: 'one',
      states: (state) => ({
        one: state({
          to: ['two'],
          run: (a) => {
            a.page({ tag: 'trouble', summary: 'x' });
            return a.to('two');
          },
        }),
        two: state({
          run: (a) => {
            a.page({ tag: 'last word', summary: 'look at what is left' });
            return a.done();
          },
        }),
      }),
    });
    const { actors } = await openScene([Ends]);
    const one = await actors.create(Ends, {});
    await actors.work(one);
    expect(await actors.pages()).toMatchObject([{ tag: 'trouble' }]);
    await actors.work(one);
    expect(await actors.pages()).toMatchObject([{ tag: 'last word', actor: one.id, status: 'open' }]);
    expect(await actors.resolvePage({ tag: 'last word' })).toBe(true);
  });

  // Invariant A23.
  test('are delivered to every channel, again and again until it takes them, and not while their root is open', async () => {
    const scene = await openScene([Sleeper]);
    const told: PageNotice[] = [];
    let refuses = 2;
    const server = createServer((request, response) => {
      let body = '';
      request.on('data', (part) => {
        body += part;
      });
      request.on('end', () => {
        refuses -= 1;
        if (refuses < 0) told.push(JSON.parse(body));
        response.writeHead(refuses < 0 ? 200 : 500).end();
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const lines: string[] = [];
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
    await scene.run({ channels: [webhook(url), consoleChannel((line) => lines.push(line))] });
    const { actors } = scene;
    await actors.page({ tag: 'host:1', summary: 'down', severity: 'critical' });
    await actors.page({ tag: 'vm:1', summary: 'unreachable', root: 'host:1' });
    await until('the console has it', () => lines.length === 1);
    expect(lines[0]).toMatch(/page \d+ opened, critical: down \[host:1\]/);
    await until('the webhook has it', async () => {
      await scene.query(
        'update pawl.actor_notice set next_at = clock_timestamp() where done_at is null and error is not null',
      );
      await actors.page({ tag: 'host:1', summary: 'down' });
      await scene.query(`select pg_notify('pawl_actor', 'page')`);
      return told.length > 0;
    });
    expect(told[0]).toMatchObject({ kind: 'opened', tag: 'host:1', severity: 'critical' });
    expect(await actors.pages()).toMatchObject([{ tag: 'vm:1', suppressed: true }, { tag: 'host:1' }]);
    await actors.resolvePage({ tag: 'host:1' });
    await until('the other one is delivered now', () => told.some(({ tag }) => tag === 'vm:1'));
    await until('that, too', () => told.some(({ tag, kind }) => `${tag} ${kind}` === 'host:1 resolved'));
    expect(lines.filter((line) => line.includes('opened, critical: down'))).toHaveLength(1);
    expect(() => webhook('mailto:ann')).toThrow(InvalidInput);
  });

  test('about one root are one notification, as long as none is worse; when it is resolved the next one stands for them', async () => {
    const scene = await openScene([Sleeper]);
    const { actors } = scene;
    const lines: string[] = [];
    const news = (): string[] => lines.map((line) => line.replace(/^page \d+ /, ''));
    const page = (tag: string, severity: 'warning' | 'error' | 'critical' = 'error'): Promise<unknown> =>
      actors.page({ tag, summary: 'down', severity, root: 'host:1' });
    const told = async (...expected: string[]): Promise<void> => {
      await until(`${expected.at(-1)} is told`, () => lines.length >= expected.length);
      expect(news()).toEqual(expected);
    };
    // At the same moment, each in a transaction that does not see the others.
    const [first, ...others] = await Promise.all([1, 2, 3].map((n) => page(`vm:${n}`)));
    expect([first, ...others]).toMatchObject([{ news: 'opened' }, { news: 'opened' }, { news: 'opened' }]);
    await scene.run({ channels: [consoleChannel((line) => lines.push(line))] });
    const open = (await actors.pages()).toReversed();
    const [told1, hidden1] = [open[0]?.tag ?? '', open.slice(1).map(({ tag }) => tag)];
    await told(`opened, error: down [${told1}] (and 2 more about the same)`);
    await page('vm:4', 'warning');
    expect((await actors.pages()).filter(({ suppressed }) => suppressed)).toHaveLength(3);
    await page('vm:4', 'critical');
    await until('what got worse is told', () => lines.length === 2);
    expect(news()[1]).toMatch(/^opened, critical: down \[vm:4\]/);
    for (const tag of ['vm:4', told1]) await actors.resolvePage({ tag });
    await until('the next one is told', () => lines.length === 5);
    expect(news().slice(2)).toEqual(
      expect.arrayContaining([
        expect.stringMatching(`opened, error: down \\[${hidden1[0]}\\] \\(and 1 more`),
        'resolved, critical: down [vm:4]',
        `resolved, error: down [${told1}]`,
      ]),
    );
    // A quarter of an hour later it is news again.
    await scene.query(`update pawl.actor_page set notified_at = notified_at - interval '15 minutes'`);
    await page('vm:5');
    await until('the late one is told', () => lines.length === 6);
    expect(news()[5]).toMatch(/^opened, error: down \[vm:5\]/);
    await actors.resolvePage({ tag: 'vm:5' });
  });

  test('have a diagnostics page, with all that helps and nothing to load', async () => {
    const { actors } = await openScene([Sleeper]);
    const one = await actors.create(Sleeper, { note: '<b>bold</b>' });
    await actors.work(one);
    await actors.incr(one, 'go');
    const html = await actors.diagnose(one);
    for (const part of [
      '<svg',
      'asleep',
      '&lt;b&gt;bold',
      'What to try',
      'pawl actor explain',
      '<h3>Semaphores',
      'created',
      'always: destroy',
    ])
      expect(html).toContain(part);
    expect(html).not.toMatch(/<script|https?:\/\/(?!www\.w3\.org)/);
    const { id } = await actors.page({ tag: 'x', summary: 'odd', details: { n: 1 } });
    expect(await actors.pageHtml(id)).toContain('<h1>odd</h1>');
  });
});

describe('what operators ask', () => {
  test('list, types, diagrams and explain, without the program', async () => {
    const scene = await openScene([Sleeper]);
    const admin = createActorAdmin(scene.engine);
    const ids: string[] = [];
    for (let n = 0; n < 3; n += 1) ids.push((await scene.actors.create(Sleeper, { n })).id);
    expect((await admin.explain(ids[0] ?? '')).reasons.join()).toMatch(/no worker of its type lives/);
    await scene.actors.work(ids[0] ?? '');
    expect((await admin.explain(ids[0] ?? '')).reasons.join()).toMatch(/hibernates until/);
    expect((await admin.list({ type: 'sleeper', status: 'hibernating' })).map(({ id }) => id)).toEqual([ids[0]]);
    expect((await admin.list({ limit: 2 })).map(({ id }) => id)).toEqual([ids[2], ids[1]]);
    expect((await admin.list({ limit: 2, before: ids[1] ?? '' })).map(({ id }) => id)).toEqual([ids[0]]);
    expect(await admin.types()).toMatchObject([{ name: 'sleeper', semaphores: ['go', 'destroy'] }]);
    expect(await admin.diagram('sleeper')).toMatch(
      /stateDiagram-v2[^]*asleep \(3\)[^]*asleep --> awake[^]*awake --> gone : destroy/,
    );
    expect(await admin.diagram('sleeper', { format: 'svg', counts: false })).toMatch(/^<svg[^]*<\/svg>$/);
    await expect(admin.diagram('sleper')).rejects.toThrow(/did you mean "sleeper"/);
    await expect(admin.list({ status: 'tired' as 'due' })).rejects.toThrow(InvalidInput);
    await admin.destroy(ids[1] ?? '');
    await scene.run();
    await until('it is final', async () => (await admin.get(ids[1] ?? '')).status === 'final');
    expect((await admin.explain(ids[1] ?? '')).reasons.join()).toMatch(/it is final/);
  });

  test('lists that are cut go on where they ended', async () => {
    const scene = await openScene([Sleeper]);
    const { actors } = scene;
    const one = await actors.create(Sleeper, {});
    for (let n = 0; n < 3; n += 1) {
      await actors.incr(one, 'go');
      for (let turns = 0; turns < 2; turns += 1) await actors.work(one);
      await actors.page({ tag: `p${n}`, summary: 'odd' });
    }
    const all = await actors.history(one);
    const last = await actors.history(one, { limit: 2 });
    const before = await actors.history(one, { before: last[0]?.epoch, limit: 1000 });
    expect(all.length).toBeGreaterThan(4);
    expect([...before, ...last]).toEqual(all);
    expect(await actors.history(one, { before: 0 })).toEqual([]);
    const [newest, ...older] = await actors.pages();
    expect(await actors.pages({ limit: 1 })).toEqual([newest]);
    expect(await actors.pages({ before: newest?.id })).toEqual(older);
    await expect(actors.history(one, { before: -1 })).rejects.toThrow(InvalidInput);
    await expect(actors.pages({ before: 'x' })).rejects.toThrow(InvalidInput);
  });

  test('history that is over is removed, with the actors that ended', async () => {
    const Short = actor('short', {
      initial: 'only',
      history: '1s',
      states: (state) => ({ only: state({ run: (a) => a.done() }) }),
    });
    const scene = await openScene([Short]);
    const one = await scene.actors.create(Short, {});
    await scene.actors.work(one);
    await scene.query(`update pawl.actor_instance set finished_at = finished_at - interval '2 s'`);
    await scene.query(`update pawl.actor_transition set at = at - interval '2 s'`);
    expect(await scene.one('select pawl.actor_prune(10)')).toBe(1);
    await expect(scene.actors.get(one)).rejects.toThrow(NotFound);
    expect(await scene.one('select count(*)::int from pawl.actor_transition')).toBe(0);
  });
});
