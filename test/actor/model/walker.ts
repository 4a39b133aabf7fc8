import { type ActorDefinition, actor, type LooseFields, type Turn } from '../../../src/actor/index.ts';
import type { Duration } from '../../../src/base/time/duration.ts';

export type Step = (a: Turn<LooseFields, 'go' | 'destroy', string>) => Promise<void>;

/**
 * A machine that walks through five states and ends: it bears a child, remembers an effect, and writes a row in three of its commits.
 * @param held  how long the body may take that holds its row
 */
export function walker(
  step: Step,
  held?: Duration,
): {
  Walker: ActorDefinition<LooseFields, 'go' | 'destroy'>;
  Companion: ActorDefinition<LooseFields, never>;
} {
  const Companion = actor('companion', {
    initial: 'only',
    states: (state) => ({ only: state({ run: (a) => a.done(a.fields['n']) }) }),
  });
  const effect = (a: Turn<LooseFields, 'go' | 'destroy', string>): void =>
    a.atCommit(async (tx) => {
      await tx.client.query({
        text: 'insert into test_effect (actor, visit) values ($1, $2)',
        values: [a.id, a.visit],
      });
    });
  const Walker = actor('walker', {
    semaphores: ['go', 'destroy'],
    initial: 'one',
    always: { destroy: 'four' },
    backoff: { min: 10, max: 50 },
    states: (state) => ({
      one: state({
        to: ['two'],
        run: async (a) => {
          await step(a);
          effect(a);
          const child = await a.create(Companion, { n: Number(a.id) });
          return a.to('two', { child: child.id });
        },
      }),
      two: state({
        to: ['three'],
        run: async (a) => {
          await step(a);
          // Whatever its process suffers, and whatever its clock says: the timer wakes it.
          if (!a.timer('pace', '20ms') || a.openChildren > 0) return a.hibernate();
          return a.to('three', { children: (await a.children()).length });
        },
      }),
      three: state({
        to: ['held'],
        run: async (a) => {
          const made = await a.once('make', { n: 1 }, async (key) => ({ key }));
          await step(a);
          return a.to('held', { made: made.key === a.key('make', { n: 1 }) });
        },
      }),
      held: state({
        hold: 'transaction',
        timeout: held,
        to: ['four'],
        run: async (a) => {
          await a.tx.client.query({
            text: 'insert into test_effect (actor, visit) values ($1, $2)',
            values: [a.id, a.visit],
          });
          await step(a);
          return a.to('four');
        },
      }),
      four: state({
        run: async (a) => {
          await step(a);
          effect(a);
          return a.done(a.fields);
        },
      }),
    }),
  });
  return { Walker, Companion };
}
