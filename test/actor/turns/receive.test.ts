import * as v from 'valibot';
import { describe, expect, test } from 'vitest';
import { type ActorDefinition, actor, type Outcome, type Turn } from '../../../src/actor/index.ts';
import type { LooseFields } from '../../../src/actor/kind.ts';
import { until } from '../../support/eventually.ts';
import { openScene } from '../scene.ts';

type Body = (a: Turn<LooseFields, never, 'after'>) => Outcome<'after'> | Promise<Outcome<'after'>>;

function reader(run: Body, after: Body = (a) => a.hibernate()): ActorDefinition<LooseFields, never> {
  return actor('reader', {
    initial: 'only',
    backoff: { min: '1h' },
    states: (state) => ({ only: state({ to: ['after'], run }), after: state({ to: ['after'], run: after }) }),
  });
}

describe('a.receive(name)', () => {
  test('takes the messages of that name and leaves the others for a later turn, and another state', async () => {
    const seen: unknown[] = [];
    const Reader = reader(
      async (a) => {
        seen.push((await a.receive('paid')).map(({ payload }) => payload));
        return seen.length === 2 ? a.to('after') : a.hibernate();
      },
      async (a) => {
        seen.push((await a.receive()).map(({ name }) => name));
        return a.hibernate();
      },
    );
    const { actors } = await openScene([Reader]);
    const one = await actors.create(Reader, {});
    await actors.send(one, 'note', 1);
    await actors.send(one, 'paid', 2);
    await actors.send(one, 'paid', 3);
    await actors.work(one);
    expect((await actors.get(one)).messages).toBe(1);
    await actors.send(one, 'note', 4);
    await actors.work(one);
    await actors.work(one);
    expect(seen).toEqual([[2, 3], [], ['note', 'note']]);
    expect((await actors.get(one)).messages).toBe(0);
  });

  // Invariant A11.
  test('does not run the actor again and again for what it leaves', async () => {
    let turns = 0;
    const Reader = reader(async (a) => {
      turns += 1;
      await a.receive('paid');
      return a.hibernate();
    });
    const { actors, run } = await openScene([Reader]);
    const one = await actors.create(Reader, {});
    await run();
    await actors.waitFor(one, { status: 'hibernating' });
    const before = turns;
    await actors.send(one, 'note');
    await until('it was woken', () => turns > before);
    await actors.waitFor(one, { status: 'hibernating' });
    await actors.send(one, 'paid');
    await until('it was woken again', async () => (await actors.get(one)).messages === 1);
    expect(turns).toBe(before + 2);
  });

  // Invariant A10.
  test('with a limit takes the oldest, and is woken for those that are left of that name', async () => {
    const seen: unknown[] = [];
    const Reader = reader(async (a) => {
      for (const { payload } of await a.receive('job', { limit: 2 })) seen.push(payload);
      return a.hibernate();
    });
    const { actors, run, one: ask } = await openScene([Reader]);
    const one = await actors.create(Reader, {});
    for (let n = 1; n <= 5; n += 1) await actors.send(one, 'job', n);
    await actors.send(one, 'note');
    await run();
    await until('all were taken', () => seen.length === 5);
    await actors.waitFor(one, { status: 'hibernating' });
    expect(seen).toEqual([1, 2, 3, 4, 5]);
    expect(await ask('select count(*)::int from pawl.actor_inbox')).toBe(0);
  });

  test('gives each message once a turn, however it is asked for', async () => {
    const seen: string[][] = [];
    const Reader = reader(async (a) => {
      for (const name of ['a', 'a', undefined, undefined]) {
        const some = name === undefined ? await a.receive() : await a.receive(name);
        seen.push(some.map((message) => message.name));
      }
      return a.hibernate();
    });
    const { actors } = await openScene([Reader]);
    const one = await actors.create(Reader, {});
    for (const name of ['a', 'b', 'a']) await actors.send(one, name);
    await actors.work(one);
    expect(seen).toEqual([['a', 'a'], [], ['b'], []]);
    expect((await actors.get(one)).messages).toBe(0);
  });

  test('gives what was taken again to the next try of a turn that fails', async () => {
    const seen: unknown[] = [];
    const Reader = reader(async (a) => {
      seen.push((await a.receive('paid')).length);
      if (a.attempt === 1) throw new Error('not yet');
      return a.hibernate();
    });
    const { actors } = await openScene([Reader]);
    const one = await actors.create(Reader, {});
    await actors.send(one, 'paid');
    await actors.work(one);
    await actors.work(one);
    await actors.work(one);
    expect(seen).toEqual([1, 1, 0]);
  });

  test('with a schema gives what that makes of the payload, and names the message that it refuses', async () => {
    const seen: number[] = [];
    const amount = v.pipe(
      v.object({ amount: v.number() }),
      v.transform(({ amount: n }) => n * 100),
    );
    const Reader = reader(async (a) => {
      for (const { payload } of await a.receive('paid', { schema: amount })) seen.push(payload);
      return a.hibernate();
    });
    const { actors } = await openScene([Reader]);
    const one = await actors.create(Reader, {});
    await actors.send(one, 'paid', { amount: 3 });
    await actors.work(one);
    expect(seen).toEqual([300]);
    await actors.send(one, 'paid', { amount: 'much' });
    expect((await actors.work(one))?.kind).toBe('failed');
    expect((await actors.get(one)).error).toMatch(/message \d+ \("paid"\)[^]*amount[^]*stays in the inbox/);
    expect((await actors.get(one)).messages).toBe(1);
  });

  test('refuses what is no name, no limit and no schema', async () => {
    const refused: string[] = [];
    const Reader = reader(async (a) => {
      for (const [name, options] of [
        ['', {}],
        ['paid', { limit: 0 }],
        ['paid', { limit: 1001 }],
        ['paid', { schema: 'text' }],
        ['paid', { shema: 1 }],
      ] as const) {
        await a.receive(name, options as never).catch((error: unknown) => refused.push(String(error)));
      }
      return a.hibernate();
    });
    const { actors } = await openScene([Reader]);
    await actors.work(await actors.create(Reader, {}));
    expect(refused).toHaveLength(5);
    for (const text of refused) expect(text).toMatch(/InvalidInput/);
  });
});
