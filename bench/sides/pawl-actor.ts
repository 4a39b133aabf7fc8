// Pawl's actors. Profiles: the actors of `turns` are due again 10 ms after each turn, and a turn does nothing; the actors of `wake`
// sleep until a raise, and note when their body starts; `idle` has the actors of `wake`, and a worker that polls more often.
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { loadActors, type PawlActors, type PawlDispatcher, watchStatements } from './pawl-actor-api.ts';
import type { PawlEngine } from './pawl-api.ts';
import { serve } from './protocol.ts';

interface Session {
  readonly engine: PawlEngine;
  readonly actors: PawlActors;
  readonly monitor: pg.Client;
  readonly poll: string;
  dispatcher?: PawlDispatcher;
}

let opened: Session | undefined;
let turns = 0;
const sent = await watchStatements();
/** Pairs of an actor and a time (ms since 1970), at which this process raised the actor or started its body. */
let moments: number[] = [];

function current(): Session {
  if (opened === undefined) throw new Error('open first');
  return opened;
}

function now(): number {
  return performance.timeOrigin + performance.now();
}

serve({
  async open({ url, profile }) {
    const { postgres, actor, createActors } = await loadActors();
    const engine = postgres(url, { max: 10 });
    await engine.migrate();
    const isRaised = profile !== 'turns';
    const body = isRaised
      ? (a: { id: string; pos(name: string): boolean; decr(name: string): void; hibernate(): unknown }): unknown => {
          if (a.pos('go')) moments.push(Number(a.id), now());
          a.decr('go');
          return a.hibernate();
        }
      : (a: { stay(): unknown }): unknown => {
          turns += 1;
          return a.stay();
        };
    const only = { ...(isRaised ? {} : { every: '10ms' }), run: body };
    const Thing = actor('thing', { semaphores: ['go'], initial: 'only', states: { only: { options: only } } });
    const actors = createActors(engine, [Thing]);
    await actors.register();
    const monitor = new pg.Client(url);
    await monitor.connect();
    opened = { engine, actors, monitor, poll: profile === 'idle' ? '20ms' : '50ms' };
  },

  async enqueue({ count }) {
    const { monitor } = current();
    const begin = performance.now();
    await monitor.query(`select count(pawl.actor_create('{"type":"thing"}')) from generate_series(1, $1::int)`, [
      count,
    ]);
    return { ms: performance.now() - begin };
  },

  async work() {
    const self = current();
    self.dispatcher = self.actors.run({ concurrency: 200, poll: self.poll });
    await self.dispatcher.started;
  },

  async handled() {
    return { jobs: turns, units: turns };
  },

  async statements() {
    return { count: sent.count };
  },

  async send({ count, gapMs: [shortest, longest] }) {
    const { actors, monitor } = current();
    const { rows } = await monitor.query<{ id: string }>('select id::text from pawl.actor order by id');
    for (let n = 0; n < count; n += 1) {
      const { id } = rows[n % rows.length] ?? { id: '' };
      moments.push(Number(id), now());
      await actors.incr(id, 'go');
      await sleep(shortest + Math.random() * (longest - shortest));
    }
  },

  async pickups() {
    const ms = moments;
    moments = [];
    return { ms };
  },

  async close() {
    const self = current();
    await self.dispatcher?.stop();
    opened = undefined;
    await self.engine.stop();
    await self.monitor.end();
  },
});
