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

/** Ends when it is told to. */
export const Kid: ActorDefinition<LooseFields, 'end', LooseFields> = actor('Kid', {
  semaphores: ['end'],
  initial: 'lives',
  states: { lives: state({ run: (a) => (a.take('end') ? a.done(a.fields['n']) : a.hibernate()) }) },
});

/** Has two children, says how many live when it is asked, and stays for longer than its deadline. */
export const Clan: ActorDefinition<LooseFields, never, LooseFields> = actor('Clan', {
  initial: 'creates',
  backoff: { kind: 'fixed', min: 1 },
  states: {
    creates: state({
      to: ['waits'],
      run: async (a) => {
        await a.create(Kid, { n: 0 });
        await a.create(Kid, { n: 1 });
        return a.to('waits');
      },
    }),
    waits: state({
      deadline: '50ms',
      run: async (a) => {
        for (const question of await a.receive('count')) question.reply(a.openChildren);
        if (a.openChildren > 0) return a.hibernate();
        return a.done((await a.children()).map(({ result }) => result));
      },
    }),
  },
});
