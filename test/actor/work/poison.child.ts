// A process that runs actors of the types "poison" and "good". A poison's body kills its process, or never gives the event loop
// back; a good one's waits until it is told to end, and says when it begins.
import { setTimeout as sleep } from 'node:timers/promises';
import { createActors } from '../../../src/actor/index.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { poison } from './poison.ts';

const { URL: url = '', KIND = 'kill', BLOCKED } = process.env;
const engine = postgres(url, { max: 8, logger: { debug() {}, info() {}, warn() {}, error() {} } });
const say = (message: object): void => console.log(JSON.stringify(message));
const actors = createActors(
  engine,
  poison({
    poison: () => {
      if (KIND === 'kill') process.kill(process.pid, 'SIGKILL');
      for (;;);
    },
    good: async () => {
      await sleep(50);
    },
  }),
);
const dispatcher = actors.run({ lease: '2s', poll: '100ms', onBlocked: BLOCKED === 'exit' ? 'exit' : undefined });
await dispatcher.started;
say({ ready: true });
