import { expect, test } from 'vitest';
import { actor, state } from '../../src/actor/index.ts';
import { Conflict, InvalidInput, NotFound } from '../../src/base/errors.ts';
import { aborted, eventually, until } from '../support/eventually.ts';
import { familyContract } from './contract/family.ts';
import { fresh, type OpenActors, start } from './contract/open.ts';
import { pageContract } from './contract/pages.ts';
import { pauseContract } from './contract/pauses.ts';
import { questionContract } from './contract/questions.ts';
import { turnContract } from './contract/turns.ts';

/** Counts what was raised until it is told to end. */
function counter() {
  return actor(fresh('Counter'), {
    semaphores: ['more', 'end'],
    initial: 'counts',
    states: {
      counts: state({
        to: ['ends'],
        run: (a) => {
          const n = Number(a.fields['n'] ?? 0) + a.val('more');
          a.decr('more');
          return a.take('end') ? a.to('ends', { n }) : a.hibernate({ n });
        },
      }),
      ends: state({ run: (a) => a.done(a.fields['n']) }),
    },
  });
}

/** The promises of actors, whatever their engine: called once for each. */
export function actorContract(open: OpenActors): void {
  questionContract(open);
  pageContract(open);
  familyContract(open);
  pauseContract(open);
  turnContract(open);

  test('what is raised is counted once, and a declared transition leads to the end', async () => {
    const Counter = counter();
    const actors = await open([Counter]);
    const { id } = await actors.create(Counter, { n: 0 });
    await start(actors);
    for (let n = 0; n < 5; n += 1) await actors.incr(id, 'more', { n: 2 });
    await actors.incr(id, 'end');
    const { result, state: last } = await actors.waitFor(id);
    expect({ result, last }).toEqual({ result: 10, last: 'ends' });
    expect(await actors.incr(id, 'more')).toBe(false);
    expect(await actors.send(id, 'late')).toBe(false);
    const history = await actors.history(id);
    expect(history.map(({ from, to, reason }) => [from, to, reason])).toEqual([
      [null, 'counts', 'created'],
      ['counts', 'ends', 'to'],
      ['ends', 'ends', 'done'],
    ]);
  });

  test('several actors and three dispatchers: each raise is counted once', async () => {
    const Counter = counter();
    const actors = await open([Counter]);
    const all = await Promise.all(Array.from({ length: 8 }, () => actors.create(Counter, { n: 0 })));
    await Promise.all([1, 2, 3].map(() => start(actors, { concurrency: 3 })));
    await Promise.all(all.flatMap(({ id }) => [actors.incr(id, 'more'), actors.incr(id, 'more', { n: 3 })]));
    await Promise.all(all.map(({ id }) => actors.incr(id, 'end')));
    for (const { id } of all) expect((await actors.waitFor(id)).result).toBe(4);
  });

  test('one actor of a type and key, ever', async () => {
    const Counter = counter();
    const actors = await open([Counter]);
    const first = await actors.create(Counter, { n: 1 }, { key: 'a' });
    const second = await actors.create(Counter, { n: 2 }, { key: 'a' });
    expect(first.created).toBe(true);
    expect(second).toMatchObject({ id: first.id, created: false });
    expect(await actors.find(Counter, 'a')).toMatchObject({ id: first.id });
    expect(await actors.find(Counter, 'b')).toBeUndefined();
    await expect(actors.incr('999999999', 'more')).rejects.toThrow(NotFound);
    await expect(actors.incr(first.id, 'mroe' as 'more')).rejects.toThrow(InvalidInput);
  });

  test('messages are received in their order, each once, and those of other names stay', async () => {
    const heard: string[] = [];
    const Box = actor(fresh('Box'), {
      initial: 'open',
      states: {
        open: state({
          run: async (a) => {
            // First, since each call reads the inbox anew: what was sent before it is there when the notes are read.
            const rest = await a.receive('end', { limit: 1 });
            for (const { name, payload } of await a.receive('note')) heard.push(`${name} ${String(payload)}`);
            return rest.length > 0 ? a.done(heard.length) : a.hibernate();
          },
        }),
      },
    });
    const actors = await open([Box]);
    const { id } = await actors.create(Box, {});
    for (let n = 0; n < 12; n += 1) await actors.send(id, 'note', n);
    await start(actors);
    await eventually(() => expect(heard).toHaveLength(12));
    await actors.send(id, 'note', 12);
    await actors.send(id, 'end');
    await actors.waitFor(id);
    expect(heard).toEqual(Array.from({ length: 13 }, (_, n) => `note ${n}`));
  });

  test('a nap ends by its time, or by what comes before', async () => {
    const turns: number[] = [];
    const Sleeper = actor(fresh('Sleeper'), {
      semaphores: ['up'],
      initial: 'asleep',
      states: {
        asleep: state({
          run: (a) => {
            turns.push(turns.length);
            if (a.take('up')) return a.done();
            return a.nap(turns.length === 1 ? '30ms' : '1h');
          },
        }),
      },
    });
    const actors = await open([Sleeper]);
    const { id } = await actors.create(Sleeper, {});
    await start(actors);
    await until('it has napped', () => turns.length === 2);
    await actors.waitFor(id, { status: 'napping' });
    expect((await actors.explain(id)).reasons[0]).toMatch(/^it naps for another/);
    await actors.incr(id, 'up');
    await actors.waitFor(id);
    expect(turns).toHaveLength(3);
  });

  test('a timer passes once its time has come, also after other turns', async () => {
    const Timed = actor(fresh('Timed'), {
      semaphores: ['nudge'],
      initial: 'waits',
      states: {
        waits: state({
          run: (a) => {
            a.decr('nudge');
            return a.timer('late', '150ms') ? a.done('passed') : a.hibernate();
          },
        }),
      },
    });
    const actors = await open([Timed]);
    const { id } = await actors.create(Timed, {});
    await start(actors);
    await actors.incr(id, 'nudge');
    expect((await actors.waitFor(id)).result).toBe('passed');
  });

  test('a turn that fails is tried again, with its reason; after so many tries it is given up', async () => {
    const seen: (string | null)[] = [];
    const Weak = actor(fresh('Weak'), {
      initial: 'works',
      backoff: { kind: 'fixed', min: 1 },
      states: {
        works: state({
          to: ['fails'],
          tries: 3,
          giveUp: 'fails',
          run: (a) => {
            seen.push(a.error?.split('\n')[0] ?? null);
            throw new Error(`no ${a.attempt}`);
          },
        }),
        fails: state({ run: (a) => a.done(a.cause?.split('\n')[0]) }),
      },
    });
    const actors = await open([Weak]);
    const { id } = await actors.create(Weak, {});
    await start(actors);
    const { result } = await actors.waitFor(id);
    expect(seen).toEqual([null, 'Error: no 1', 'Error: no 2']);
    expect(result).toBe('Error: no 3');
    const history = await actors.history(id);
    expect(history.map(({ reason }) => reason)).toEqual([
      'created',
      'failed',
      'failed',
      'gave up after 3 tries',
      'done',
    ]);
  });

  test('once keeps a result for the tries of a visit', async () => {
    let [runs, tries] = [0, 0];
    const keys = new Set<string>();
    const Payer = actor(fresh('Payer'), {
      initial: 'pays',
      backoff: { kind: 'fixed', min: 1 },
      states: {
        pays: state({
          run: async (a) => {
            tries += 1;
            const paid = await a.once('pay', { sum: 1 }, (key) => {
              keys.add(key);
              return (runs += 1);
            });
            if (tries < 3) throw new Error('again');
            return a.done(paid);
          },
        }),
      },
    });
    const actors = await open([Payer]);
    const { id } = await actors.create(Payer, {});
    await start(actors);
    expect((await actors.waitFor(id)).result).toBe(1);
    expect({ runs, tries, keys: keys.size }).toEqual({ runs: 1, tries: 3, keys: 1 });
  });

  test('a paused actor begins no turn, and nothing that comes meanwhile is lost', async () => {
    const Counter = counter();
    const actors = await open([Counter]);
    const { id } = await actors.create(Counter, { n: 0 });
    await start(actors);
    await actors.waitFor(id, { status: 'hibernating' });
    await actors.pause(id);
    await actors.incr(id, 'more');
    await actors.incr(id, 'end');
    const other = await actors.create(Counter, { n: 0 });
    await actors.incr(other.id, 'end');
    await actors.waitFor(other.id);
    expect((await actors.explain(id)).status).toBe('paused');
    await actors.resume(id);
    expect((await actors.waitFor(id)).result).toBe(1);
  });

  test('a paused type begins no turn', async () => {
    const Counter = counter();
    const actors = await open([Counter]);
    await actors.register();
    await actors.pause({ type: Counter.name });
    const { id } = await actors.create(Counter, { n: 5 });
    await actors.incr(id, 'end');
    await start(actors);
    expect((await actors.get(id)).status).toBe('paused');
    await actors.resume({ type: Counter.name });
    expect((await actors.waitFor(id)).result).toBe(5);
  });

  test('a turn by hand, a retry and a move', async () => {
    const Counter = counter();
    const actors = await open([Counter]);
    const { id } = await actors.create(Counter, { n: 1 });
    expect(await actors.work(id)).toMatchObject({ kind: 'stay', from: 'counts' });
    expect((await actors.get(id)).status).toBe('hibernating');
    expect(await actors.retry(id)).toBe(true);
    expect((await actors.get(id)).status).toBe('due');
    await actors.move(id, 'ends', { n: 7 }, { reason: 'for a test' });
    expect(await actors.get(id)).toMatchObject({ state: 'ends', visit: 2, fields: { n: 7 } });
    expect(await actors.work(id)).toMatchObject({ kind: 'done', to: 'ends' });
    expect((await actors.get(id)).result).toBe(7);
    await expect(actors.work(id)).rejects.toThrow(Conflict);
    const [, moved] = await actors.history(id);
    expect(moved).toMatchObject({ from: 'counts', to: 'ends', reason: 'moved: for a test' });
  });

  test('a turn raises and sends with its commit', async () => {
    const Counter = counter();
    const Sender = actor(fresh('Sender'), {
      initial: 'sends',
      states: {
        sends: state({
          run: (a) => {
            const to = String(a.fields['to']);
            a.incr(to, 'more');
            a.incr(to, 'more');
            a.incr(to, 'end');
            return a.done();
          },
        }),
      },
    });
    const actors = await open([Counter, Sender]);
    const { id } = await actors.create(Counter, { n: 0 });
    await actors.create(Sender, { to: id });
    await start(actors);
    expect((await actors.waitFor(id)).result).toBe(2);
  });

  test('the actors of a worker that died run elsewhere, and it writes nothing more', async () => {
    const began: string[] = [];
    const Slow = actor(fresh('Slow'), {
      initial: 'works',
      backoff: { kind: 'fixed', min: 1 },
      states: {
        works: state({
          run: async (a) => {
            began.push(String(a.token));
            if (began.length === 1) await aborted(a.signal);
            return a.done(began.length);
          },
        }),
      },
    });
    const actors = await open([Slow]);
    const { id } = await actors.create(Slow, {});
    const first = await start(actors, { lease: '1s' });
    await until('it runs', () => began.length === 1);
    first.abandon();
    await start(actors, { lease: '1s' });
    const { result, lost } = await actors.waitFor(id);
    // On a busy machine the second worker may be declared dead as well.
    expect(began.length).toBeGreaterThanOrEqual(2);
    expect({ result, lost }).toEqual({ result: began.length, lost: 0 });
    expect(Number(began[1])).toBeGreaterThan(Number(began[0]));
    const losses = began.slice(1).map(() => 'worker lost');
    expect((await actors.history(id)).map(({ reason }) => reason)).toEqual(['created', ...losses, 'done']);
  });

  test('the newest come first in a list, and a machine is drawn', async () => {
    const Counter = counter();
    const actors = await open([Counter]);
    const ids = [];
    for (let n = 0; n < 3; n += 1) ids.push((await actors.create(Counter, { n })).id);
    const listed = await actors.list({ type: Counter.name, limit: 2 });
    expect(listed.map(({ id, state: at }) => [id, at])).toEqual([
      [ids[2], 'counts'],
      [ids[1], 'counts'],
    ]);
    expect(await actors.diagram(Counter.name, { counts: false })).toContain('counts --> ends');
  });
}
