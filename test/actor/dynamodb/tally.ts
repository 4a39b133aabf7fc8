import { setTimeout as sleep } from 'node:timers/promises';
import { type ActorDefinition, actor, type LooseFields, state } from '../../../src/actor/index.ts';

/** What the first turn of an actor with `slowFor` tells. */
export const told: { began: (id: string) => void } = { began: () => {} };

/** Counts what is raised, and keeps what is sent, until it is told to end. Its first turn may be slow. */
export const Tally: ActorDefinition<LooseFields, 'more' | 'end', LooseFields> = actor('Tally', {
  semaphores: ['more', 'end'],
  initial: 'counts',
  backoff: { kind: 'fixed', min: 1 },
  states: {
    counts: state({
      to: ['ends'],
      run: async (a) => {
        if (a.fields['slowFor'] !== undefined && a.attempt === 1) {
          told.began(a.id);
          await sleep(Number(a.fields['slowFor']), undefined, { signal: a.signal });
        }
        const n = Number(a.fields['n']) + a.val('more');
        a.decr('more');
        const received = await a.receive('note');
        const notes = [...Array.from<unknown>(a.fields['notes']), ...received.map(({ payload }) => payload)];
        return a.take('end') ? a.to('ends', { n, notes }) : a.hibernate({ n, notes });
      },
    }),
    ends: state({ run: (a) => a.done({ n: a.fields['n'], notes: a.fields['notes'] }) }),
  },
});
