import { expect, test } from 'vitest';
import { actor, state } from '../../../src/actor/index.ts';
import { eventually } from '../../support/eventually.ts';
import { fresh, type OpenActors, start } from './open.ts';

/** Ends at `finish`, and when it is told to. */
function child() {
  return actor(fresh('Child'), {
    semaphores: ['finish', 'destroy'],
    initial: 'works',
    always: { destroy: 'ends' },
    states: {
      works: state({ run: (a) => (a.take('finish') ? a.done(a.fields['n']) : a.hibernate()) }),
      ends: state({ run: (a) => a.done('destroyed') }),
    },
  });
}

/** Creates as many children as its fields say, and is done with their results when all have ended; counts its turns meanwhile. */
function parentOf(Child: ReturnType<typeof child>, children: 'each' | 'last' = 'last') {
  return actor(fresh('Parent'), {
    semaphores: ['destroy'],
    initial: 'creates',
    always: { destroy: 'ends' },
    backoff: { kind: 'fixed', min: 1 },
    states: {
      creates: state({
        to: ['waits'],
        run: async (a) => {
          for (let n = 0; n < Number(a.fields['children']); n += 1) await a.create(Child, { n });
          return a.to('waits', { ...a.fields, turns: [] });
        },
      }),
      waits: state({
        children,
        run: async (a) => {
          const turns = [...Array.from<unknown>(a.fields['turns']), a.openChildren];
          if (a.openChildren > 0) return a.hibernate({ turns });
          return a.done({ turns, results: (await a.children()).map(({ result }) => result) });
        },
      }),
      ends: state({ run: async (a) => ((await a.incrChildren()) > 0 ? a.hibernate() : a.done('destroyed')) }),
    },
  });
}

/** What is promised of parents and children. */
export function familyContract(open: OpenActors): void {
  // Invariant A20.
  test('children are born with the turn that creates them, and their parent is woken once, when the last has ended', async () => {
    const Child = child();
    const Parent = parentOf(Child);
    const actors = await open([Parent, Child]);
    const parents = await Promise.all([1, 2].map(() => actors.create(Parent, { children: 3 })));
    await start(actors);
    await start(actors);
    for (const { id } of parents) {
      await actors.waitFor(id, { state: 'waits' });
      await actors.waitFor(id, { status: 'hibernating' });
    }
    const children = await actors.list({ type: Child.name });
    for (const { id } of parents) expect(children.filter(({ parent }) => parent === id)).toHaveLength(3);
    await Promise.all(children.map(({ id }) => actors.incr(id, 'finish')));
    for (const { id } of parents) {
      expect((await actors.waitFor(id)).result).toEqual({ turns: [3, 0], results: [0, 1, 2] });
      expect((await actors.get(id)).openChildren).toBe(0);
      expect(await actors.list({ parent: id, final: true })).toHaveLength(3);
    }
  });

  test("a state with children: 'each' is woken by the end of each of them", async () => {
    const Child = child();
    const Parent = parentOf(Child, 'each');
    const actors = await open([Parent, Child]);
    const { id } = await actors.create(Parent, { children: 2 });
    await start(actors);
    for (const left of [2, 1]) {
      await eventually(async () =>
        expect((await actors.get(id)).fields).toMatchObject({ turns: [2, 1].slice(0, 3 - left) }),
      );
      const [first] = await actors.list({ parent: id });
      await actors.incr(String(first?.id), 'finish' as never);
    }
    expect((await actors.waitFor(id)).result).toMatchObject({ turns: [2, 1, 0] });
  });

  test('an actor with children that are not final cannot end, and its turn says so', async () => {
    const Child = child();
    const Hasty = actor(fresh('Hasty'), { initial: 'only', states: { only: state({ run: (a) => a.done() }) } });
    const actors = await open([Hasty, Child]);
    const parent = await actors.create(Hasty, {});
    const born = await actors.create(Child, {}, { parent });
    expect(await actors.work(parent)).toMatchObject({ kind: 'failed' });
    const { status, openChildren, error } = await actors.get(parent);
    expect({ status, openChildren }).toEqual({ status: 'backing off', openChildren: 1 });
    expect(error).toMatch(/children that are not final/);
    await actors.incr(born, 'finish');
    await actors.work(born);
    await actors.work(parent);
    expect(await actors.get(parent)).toMatchObject({ status: 'final' });
    await expect(actors.create(Child, {}, { parent })).rejects.toThrow(/is final/);
    await expect(actors.create(Child, {}, { parent: '987654321' })).rejects.toThrow(
      /there is no actor \d+, so it cannot be the parent/,
    );
  });

  // Invariant A21.
  test('what destroys a parent leaves no orphan', async () => {
    const Child = child();
    const Parent = parentOf(Child);
    const actors = await open([Parent, Child]);
    const { id } = await actors.create(Parent, { children: 2 });
    await start(actors);
    await actors.waitFor(id, { state: 'waits' });
    await actors.destroy(id);
    expect((await actors.waitFor(id)).result).toBe('destroyed');
    expect(await actors.list({ type: Child.name })).toEqual([]);
  });

  test('a child whose key is taken fails the turn, which then creates nothing', async () => {
    const Child = child();
    const Keyed = actor(fresh('Keyed'), {
      initial: 'creates',
      states: {
        creates: state({
          run: async (a) => {
            await a.create(Child, { n: 1 }, { key: 'free' });
            await a.create(Child, { n: 2 }, { key: String(a.fields['second']) });
            return a.hibernate();
          },
        }),
      },
    });
    const actors = await open([Keyed, Child]);
    const taken = await actors.create(Child, { n: 0 }, { key: 'taken' });
    for (const [second, known] of [
      ['taken', taken.id],
      ['free', '\\d+'],
    ]) {
      const { id } = await actors.create(Keyed, { second });
      await actors.work(id);
      const { error, openChildren } = await actors.get(id);
      expect(error).toMatch(new RegExp(`with the key "${second}" exists already \\(${known}\\)`));
      expect(openChildren).toBe(0);
      expect(await actors.find(Child, 'free')).toBeUndefined();
    }
  });
}
