// A process that runs turns of the type "walker": each turn notes itself in test_turn, at once and whatever becomes of it, and
// moves on to the next state; effects are rows of test_effect, written with the commit.
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { createActors } from '../../src/actor/index.ts';
import type { Duration } from '../../src/base/time/duration.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
import { walker } from './model/walker.ts';

const {
  URL: url = '',
  LEASE = '1s',
  CONCURRENCY = '4',
  SLOW = '0',
  BLOCKS,
  WAITS,
  HELD,
  SKEW = '0',
  RATE = '1',
} = process.env;
const [date, now] = [Date.now.bind(Date), performance.now.bind(performance)];
Date.now = () => Number(SKEW) + date() * Number(RATE);
performance.now = () => now() * Number(RATE);
const engine = postgres(url, { max: 8, logger: { debug() {}, info() {}, warn() {}, error() {} } });
const notes = new pg.Pool({ connectionString: url, max: 4 });
notes.on('error', () => {});
const say = (message: object): void => console.log(JSON.stringify(message));

const { Walker, Companion } = walker(
  async (a) => {
    await notes.query('insert into test_turn (actor, visit, epoch, pid) values ($1, $2, $3, $4)', [
      a.id,
      a.visit,
      a.token.toString(),
      process.pid,
    ]);
    say({ turn: a.id, visit: a.visit });
    if (Number(SLOW) > 0) await sleep(Number(SLOW));
    if (a.state === WAITS) await sleep(3_600_000);
    if (BLOCKS !== undefined && a.state === BLOCKS) for (;;);
  },
  HELD as Duration | undefined,
);
const actors = createActors(engine, [Walker, Companion]);
const dispatcher = actors.run({ lease: LEASE as Duration, poll: '100ms', concurrency: Number(CONCURRENCY) });
dispatcher.events.on('stale', ({ actors: stale }) => say({ stale }));
dispatcher.events.on('lost', () => say({ lost: true }));
await dispatcher.started;
say({ ready: true });
process.stdin.on('data', () => {
  void dispatcher.stop().then(() => process.exit(0));
});
