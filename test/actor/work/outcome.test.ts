import { expect, test } from 'vitest';
import { type ActorDefinition, actor } from '../../../src/actor/index.ts';
import { InvalidInput } from '../../../src/base/errors.ts';
import { openScene } from '../scene.ts';

/** Gives what another body made: of another type, of another actor of its own type, or of its own last turn. */
function thief(name: string, kept: { outcome?: unknown }): ActorDefinition {
  return actor(name, {
    initial: 'only',
    backoff: { kind: 'fixed', min: '1h', jitter: 0 },
    states: (state) => ({
      only: state({ to: ['gone'], run: () => kept.outcome as never }),
      gone: state({ run: (a) => a.done() }),
    }),
  });
}

test('an outcome that another turn made is refused, whichever it was, and the actor stays where it is', async () => {
  const kept: { outcome?: unknown } = {};
  const Owner = actor('owner', {
    initial: 'only',
    states: (state) => ({
      only: state({
        to: ['gone'],
        run: (a) => {
          kept.outcome ??= a.to('gone', { stolen: a.id });
          return kept.outcome as never;
        },
      }),
      gone: state({ run: () => kept.outcome as never }),
    }),
  });
  const Thief = thief('thief', kept);
  const { actors } = await openScene([Owner, Thief]);
  const [first, second] = [await actors.create(Owner, {}), await actors.create(Owner, {})];
  expect(await actors.work(first)).toMatchObject({ kind: 'to', to: 'gone' });
  const other = await actors.create(Thief, {});
  for (const [which, state] of [
    [first, 'gone'],
    [second, 'only'],
    [other, 'only'],
  ] as const) {
    const turn = await actors.work(which);
    expect(turn).toMatchObject({ kind: 'failed', to: state });
    expect(turn?.error).toBeInstanceOf(InvalidInput);
    expect(String(turn?.error)).toMatch(/gave an outcome of another turn/);
    expect(await actors.get(which)).toMatchObject({ state, attempt: 1 });
  }
  expect((await actors.get(other)).fields).toEqual({});
});
