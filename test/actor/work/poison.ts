import { type ActorDefinition, actor, type LooseFields } from '../../../src/actor/index.ts';

/** What the two kinds of actors do: one that ruins its process, and one that only wants to end, after ten turns. */
export function poison(bodies: {
  readonly poison: () => void;
  readonly good: () => Promise<void>;
}): readonly [ActorDefinition<LooseFields, never>, ActorDefinition<LooseFields, never>] {
  const Poison = actor('poison', {
    initial: 'only',
    backoff: { kind: 'fixed', min: '10ms', jitter: 0 },
    states: (state) => ({
      only: state({
        run: (a) => {
          bodies.poison();
          return a.done();
        },
      }),
    }),
  });
  const Good = actor('good', {
    initial: 'only',
    backoff: { kind: 'fixed', min: '10ms', jitter: 0 },
    states: (state) => ({
      only: state({
        to: ['only'],
        run: async (a) => {
          await bodies.good();
          const n = Number(a.fields['n'] ?? 0);
          return n >= 10 ? a.done() : a.to('only', { n: n + 1 });
        },
      }),
    }),
  });
  return [Poison, Good];
}
