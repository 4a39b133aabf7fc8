// A process that runs a body of "saga" which never ends.
import { actor, createActors } from '../../../src/actor/index.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';

const Saga = actor('saga', {
  initial: 'paying',
  states: (state) => ({
    paying: state({ to: ['undoing'], tries: 1, giveUp: 'undoing', run: () => new Promise<never>(() => {}) }),
    undoing: state({ run: (a) => a.done() }),
  }),
});
createActors(postgres(process.env['URL']), [Saga]).run({ lease: '1h' });
