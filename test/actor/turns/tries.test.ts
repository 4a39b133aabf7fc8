import { describe, expect, test } from 'vitest';
import { type ActorDefinition, actor, type Outcome, type Turn } from '../../../src/actor/index.ts';
import type { LooseFields } from '../../../src/actor/kind.ts';
import { InvalidInput } from '../../../src/base/errors.ts';
import { until } from '../../support/eventually.ts';
import { spawnChild } from '../../support/process.ts';
import { openScene } from '../scene.ts';

type Body = (
  a: Turn<LooseFields, never, 'paid' | 'undoing'>,
) => Outcome<'paid' | 'undoing'> | Promise<Outcome<'paid' | 'undoing'>>;

/** Pays, at most so often, and undoes what it cannot pay. */
function saga(run: Body, tries = 3, timeout?: '50ms'): ActorDefinition<LooseFields, never> {
  return actor('saga', {
    initial: 'paying',
    backoff: { min: '1h', max: '1h' },
    states: (state) => ({
      paying: state({ to: ['paid', 'undoing'], tries, giveUp: 'undoing', timeout, run }),
      paid: state({ run: (a) => a.done() }),
      undoing: state({ deadline: '1h', run: (a) => a.done({ why: a.cause, last: a.error }) }),
    }),
  });
}

describe('tries and giveUp', () => {
  test('lead on after so many failures in a row, at once, and say why', async () => {
    const attempts: number[] = [];
    const Saga = saga((a) => {
      attempts.push(a.attempt);
      throw new Error(`no money, ${a.attempt}`);
    });
    const { actors } = await openScene([Saga]);
    const one = await actors.create(Saga, {});
    expect(await actors.work(one)).toMatchObject({ kind: 'failed' });
    expect(await actors.work(one)).toMatchObject({ kind: 'failed' });
    expect(await actors.work(one)).toMatchObject({ kind: 'to', to: 'undoing', error: new Error('no money, 3') });
    const { state, attempt, error, dueInMs, deadlineAt } = await actors.get(one);
    expect({ state, attempt, error }).toEqual({ state: 'undoing', attempt: 0, error: null });
    expect(dueInMs).toBeLessThanOrEqual(0);
    expect(deadlineAt).not.toBeNull();
    await actors.work(one);
    expect((await actors.get(one)).result).toMatchObject({ why: expect.stringMatching(/no money, 3/) });
    const last = (await actors.history(one)).find(({ to, from }) => from === 'paying' && to === 'undoing');
    expect(last).toMatchObject({ reason: 'gave up after 3 tries', error: expect.stringMatching(/no money, 3/) });
    expect(attempts).toEqual([1, 2, 3]);
  });

  test('count failures in a row: a turn that comes through begins anew', async () => {
    let n = 0;
    const Saga = saga((a) => {
      n += 1;
      if (n === 3) return a.stay();
      throw new Error('no');
    });
    const { actors } = await openScene([Saga]);
    const one = await actors.create(Saga, {});
    const kinds: (string | undefined)[] = [];
    for (let turn = 0; turn < 6; turn += 1) kinds.push((await actors.work(one))?.kind);
    expect(kinds).toEqual(['failed', 'failed', 'stay', 'failed', 'failed', 'to']);
  });

  test('count a turn that ran past its time, and one whose commit is refused', async () => {
    let n = 0;
    const Saga = saga(
      (a) => {
        n += 1;
        if (n === 2) return new Promise(() => {});
        a.enqueue({ queue: 'there is no such queue', kind: 'x' });
        return a.to('paid');
      },
      3,
      '50ms',
    );
    const { actors, run } = await openScene([Saga]);
    const one = await actors.create(Saga, {});
    await run();
    for (const attempt of [1, 2]) {
      await until(`try ${attempt} has failed`, async () => {
        const { attempt: last, worker } = await actors.get(one);
        return last === attempt && worker === null;
      });
      await actors.work(one);
    }
    await actors.waitFor(one);
    const reasons = (await actors.history(one)).map(({ reason }) => reason);
    expect(reasons).toEqual([
      'created',
      'commit refused',
      'timed out',
      'commit refused',
      'gave up after 3 tries',
      'done',
    ]);
    expect((await actors.get(one)).result).toMatchObject({ why: expect.stringMatching(/there is no such queue/) });
  });

  // Invariant A3.
  test('count turns whose process was killed, without running the body once more', async () => {
    const Saga = saga(() => {
      throw new Error('this process runs no body of it');
    }, 1);
    const scene = await openScene([Saga]);
    const one = await scene.actors.create(Saga, {});
    const child = spawnChild('actor/turns/saga.child.ts', [], { URL: scene.url });
    await until('its body runs', async () => (await scene.actors.get(one)).status === 'running');
    await child.kill();
    await scene.query(`update pawl.actor_worker set expires_at = clock_timestamp() - interval '1 s'`);
    await scene.query('select pawl.actor_rescue()');
    expect(await scene.actors.work(one)).toMatchObject({ kind: 'to', to: 'undoing' });
    await scene.actors.work(one);
    expect((await scene.actors.get(one)).result).toMatchObject({ why: expect.stringMatching(/worker was lost/) });
  });

  test('are drawn', async () => {
    const Saga = saga((a) => a.to('paid'), 5);
    const { actors } = await openScene([Saga]);
    await actors.register();
    expect(await actors.diagram('saga')).toMatch(/ {2}paying --> undoing : after 5 tries\n/);
    expect(await actors.diagram('saga', { format: 'svg' })).toMatch(/stroke-dasharray/);
  });

  test('are refused one without the other, and with a state that is none', () => {
    const declare = (options: object): unknown =>
      actor('x', {
        initial: 'a',
        states: { a: { options: { run: () => {}, ...options } }, b: { options: { run: () => {} } } },
      });
    expect(() => declare({ tries: 3 })).toThrow(/has tries without giveUp/);
    expect(() => declare({ giveUp: 'b' })).toThrow(/has giveUp without tries/);
    expect(() => declare({ tries: 3, giveUp: 'c' })).toThrow(/there is no state "c"/);
    expect(() => declare({ tries: 0, giveUp: 'b' })).toThrow(InvalidInput);
  });
});

describe('a.fatal()', () => {
  test('says why to every turn of the state it leads to, whatever fails there', async () => {
    const seen: unknown[] = [];
    const Saga = actor('saga', {
      initial: 'paying',
      states: (state) => ({
        paying: state({ to: ['undoing'], run: (a) => a.fatal('undoing', 'refused') }),
        undoing: state({
          to: ['over'],
          run: (a) => {
            seen.push([a.cause, a.error === null]);
            if (a.attempt === 1) throw new Error('not yet');
            return a.to('over');
          },
        }),
        over: state({ run: (a) => a.done(a.cause) }),
      }),
    });
    const { actors } = await openScene([Saga]);
    const one = await actors.create(Saga, {});
    for (let turn = 0; turn < 4; turn += 1) await actors.work(one);
    expect(seen).toEqual([
      [expect.stringMatching(/refused/), true],
      [expect.stringMatching(/refused/), false],
    ]);
    expect((await actors.get(one)).result).toBeNull();
  });

  test('leads to a declared state at the first failure, with all that the turn asked for, and says why', async () => {
    const Saga = saga((a) => {
      a.page({ tag: `refused ${a.id}`, summary: 'the card was refused' });
      return a.fatal('undoing', new Error('card refused'), { refused: true });
    });
    const { actors } = await openScene([Saga]);
    const one = await actors.create(Saga, {});
    await actors.work(one);
    expect(await actors.get(one)).toMatchObject({ state: 'undoing', fields: { refused: true }, attempt: 0 });
    expect(await actors.pages({ actor: one })).toHaveLength(1);
    expect((await actors.history(one)).at(-1)).toMatchObject({
      reason: 'fatal',
      error: expect.stringMatching(/card refused/),
    });
    await actors.work(one);
    expect((await actors.get(one)).result).toMatchObject({ why: expect.stringMatching(/card refused/) });
  });

  test('is refused for a state that was not declared', async () => {
    const Saga = saga((a) => a.fatal('nowhere' as 'paid', new Error('x')));
    const { actors } = await openScene([Saga]);
    const one = await actors.create(Saga, {});
    expect((await actors.work(one))?.kind).toBe('failed');
    expect((await actors.get(one)).error).toMatch(/no transition from "paying" to state "nowhere"/);
  });
});
