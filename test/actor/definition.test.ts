import * as v from 'valibot';
import { describe, expect, test } from 'vitest';
import { actor, createActors, state, stateFor } from '../../src/actor/index.ts';
import { InvalidInput } from '../../src/base/errors.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
import { openScene } from './scene.ts';

const fields = v.object({ size: v.number(), instance: v.optional(v.string()) });

/** Bodies that only the compiler checks, which the lint step runs over this file. */
const checked = actor('checked', {
  fields,
  semaphores: ['grow', 'destroy'],
  initial: 'first',
  always: { destroy: 'last' },
  states: (state) => ({
    first: state({
      to: ['second', 'last'],
      run: async (a) => {
        const size: number = a.fields.size;
        // @ts-expect-error a number is no string
        const wrong: string = a.fields.size;
        // @ts-expect-error there is no such field
        void a.fields.colour;
        // @ts-expect-error there is no such semaphore
        a.pos('shrink');
        // @ts-expect-error not even to be lowered
        a.decr('shrink');
        if (size > 3) return a.to('last', { size: 4 });
        // @ts-expect-error a field of another type
        if (wrong === '') return a.to('second', { size: 'four' });
        // @ts-expect-error a field that is not declared
        return a.stay({ colour: 'red' });
      },
    }),
    second: state({
      to: ['first'],
      // @ts-expect-error "last" was not declared as a target of "second"
      run: (a) => a.to('last'),
    }),
    last: state({
      // @ts-expect-error a state without targets leads nowhere
      run: (a) => a.to('first'),
    }),
  }),
});

const imported = actor('imported', {
  semaphores: ['go'],
  initial: 'one',
  states: {
    one: state({ to: ['two'], run: async (a) => a.to('two', { anything: a.fields.whatever }) }),
    // @ts-expect-error "three" was not declared as a target
    two: state({ to: ['one'], run: async (a) => a.to('three') }),
    // @ts-expect-error a body that returns nothing
    three: state({ run: () => {} }),
  },
});

/** States as another file would declare them. */
const shape = { fields, semaphores: ['grow', 'destroy'] } as const;
const apart = stateFor(shape);
const first = apart({
  to: ['second'],
  run: async (a) => {
    const size: number = a.fields.size;
    // @ts-expect-error there is no such field
    void a.fields.colour;
    // @ts-expect-error there is no such semaphore
    if (size === 6) a.take('shrink');
    // @ts-expect-error "third" was not declared as a target
    if (size === 7) return a.to('third');
    return a.to('second', { size: a.val('grow') });
  },
});
const second = apart({ run: (a) => a.done(a.fields.instance) });
const separate = actor('separate', { ...shape, initial: 'first', states: { first, second } });
const larger = v.object({ size: v.number(), instance: v.optional(v.string()), colour: v.string() });
// An actor that has more fields and semaphores may have the state as well.
void actor('larger', {
  fields: larger,
  semaphores: ['grow', 'destroy', 'paint'],
  initial: 'second',
  states: { second },
});
const other = v.object({ name: v.string() });
void actor('other', {
  fields: other,
  semaphores: ['grow', 'destroy'],
  initial: 'second',
  // @ts-expect-error the state was made for other fields
  states: { second },
});
const mute = (): unknown =>
  actor('mute', {
    fields,
    semaphores: ['paint'],
    initial: 'second',
    // @ts-expect-error the state uses semaphores that the actor does not have
    states: { second },
  });
const deaf = (): unknown =>
  actor('deaf', {
    fields,
    initial: 'second',
    // @ts-expect-error the state uses semaphores, and the actor has none
    states: { second },
  });
void actor('silent', {
  initial: 'only',
  // @ts-expect-error there is no such semaphore
  states: (own) => ({ only: own({ run: (a) => (a.pos('go') ? a.stay() : a.done()) }) }),
});

// @ts-expect-error the initial state is none of the states
const noInitial = (): unknown => actor('x', { initial: 'nowhere', states: { here: state({ run: (a) => a.stay() }) } });
const noTarget = (): unknown =>
  actor('x', {
    semaphores: ['destroy'],
    initial: 'here',
    // @ts-expect-error the state is none of the states
    always: { destroy: 'gone' },
    states: { here: state({ run: (a) => a.stay() }) },
  });
/** As JavaScript would call it. */
function declare(options: unknown, name = 'machine'): () => unknown {
  return () => Reflect.apply(actor, undefined, [name, options]);
}

const run = (a: { stay: () => unknown }): unknown => a.stay();
const here = { run };

describe('what is declared is refused when it cannot be', () => {
  test('a state that uses semaphores which its actor does not have', () => {
    expect(mute).toThrow(/semaphore "grow".*paint/s);
    expect(deaf).toThrow(/semaphore "grow"/);
  });

  // Invariant A15.
  test.each([
    [{ initial: 'here', states: {} }, /no state "here"/],
    [{ initial: 'heer', states: { here } }, /did you mean "here"/],
    [{ initial: 'here', states: { here: { to: ['ther'], run }, there: { run } } }, /did you mean "there"/],
    [{ initial: 'here', states: { here: {} } }, /here\.run.*required/],
    [{ initial: 'here', states: { here: { run, evry: '1s' } } }, /did you mean "here\.every"/],
    [{ initial: 'here', states: { here: { run, every: 'often' } } }, /here\.every/],
    [{ initial: 'here', states: { here }, semaphore: ['a'] }, /did you mean "semaphores"/],
    [{ initial: 'here', states: { here }, semaphores: ['$child'] }, /without \$/],
    [
      { initial: 'here', states: { here }, semaphores: ['destroy'], always: { destory: 'here' } },
      /did you mean "destroy"/,
    ],
    [{ initial: 'here', states: { here }, version: 2 }, /needs migrate/],
    [{ initial: 'here', states: { here }, fields: { type: 'object' } }, /Standard Schema/],
    [{ initial: 'here' }, /states/],
    [{ initial: 'here', states: { here: 5 } }, /made by state\(\)/],
    [{ initial: 'here', states: { 'he"re': { run } } }, /no state "here"|without/],
  ])('%#', (options, message) => {
    expect(declare(options)).toThrow(InvalidInput);
    expect(declare(options)).toThrow(message);
  });

  test('and so are names, and types of the same name', () => {
    expect(declare({ initial: 'here', states: { here } }, '')).toThrow(InvalidInput);
    expect(noInitial).toThrow(/did you mean "here"/);
    expect(noTarget).toThrow(/there is only here$/);
    const engine = postgres('postgres://localhost/none');
    expect(() => createActors(engine, [])).toThrow(/at least one type/);
    expect(() => createActors(engine, [checked, checked])).toThrow(/two actor types named "checked"/);
    expect(() => Reflect.apply(createActors, undefined, [engine, [{}]])).toThrow(
      /a list of actor types, which actor\(\) returns$/,
    );
  });

  test('states that were declared apart run like others', async () => {
    const { actors } = await openScene([separate]);
    const one = await actors.create(separate, { size: 1 });
    await actors.incr(one, 'grow', { n: 3 });
    expect(await actors.work(one)).toMatchObject({ to: 'second' });
    expect((await actors.get(one)).fields).toEqual({ size: 3 });
  });

  test('what is not given to a dispatcher cannot be run by it', async () => {
    const { actors } = await openScene([imported]);
    expect(() => actors.run({ types: ['importd'] })).toThrow(/did you mean "imported"/);
    expect(() => actors.run({ concurrency: 0 })).toThrow(InvalidInput);
    // @ts-expect-error a channel is an object
    expect(() => actors.run({ channels: ['mail'] })).toThrow(/must be a channel/);
    await expect(actors.create(checked, { size: 1 })).rejects.toThrow(/was not given to createActors/);
  });
});
