// A process that runs actors of the type "pager": each ends, with a page that all of them share, unless it is told not to.
import { actor, createActors } from '../../../src/actor/index.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';

const engine = postgres(process.env['URL'] ?? '', { max: 8, logger: { debug() {}, info() {}, warn() {}, error() {} } });
const Pager = actor('pager', {
  initial: 'only',
  backoff: { min: '10ms', max: '100ms' },
  states: (state) => ({
    only: state({
      run: (a) => {
        if (a.fields['pages'] === false) return a.done();
        a.page({ tag: 'shared', summary: `seen by ${a.id}`, severity: 'critical' });
        a.page({ tag: `${a.id} alone`, summary: 'seen' });
        return a.done();
      },
    }),
  }),
});
await createActors(engine, [Pager]).run({ lease: '1s', poll: '100ms' }).started;
console.log(JSON.stringify({ ready: true }));
