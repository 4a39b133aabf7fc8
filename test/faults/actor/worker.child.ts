// A dispatcher of orders, items and counters. It notes the start and the outcome of each body. Effects are rows of faults_effect, written
// with the commit or under a guard.
import { setTimeout as sleep } from 'node:timers/promises';
import { createActors } from '../../../src/actor/index.ts';
import { postgres, statement, type Transaction } from '../../../src/engine/postgres/index.ts';
import { block, note, ready, url } from '../member/member-side.ts';
import { type AnyTurn, type Deeds, declare, type Orders } from './declaration.ts';
import type { WorkerEvent } from './history.ts';

const { LEASE = '1000', CONCURRENCY = '4' } = process.env;
const EFFECT = statement(
  'faults.effect',
  'insert into faults_effect (actor, epoch, state, kind, n) select $1, $2, $3, $4, n from unnest($5::bigint[]) n',
);

const engine = postgres(url, { max: Number(CONCURRENCY) + 6 });

async function write(a: AnyTurn, tx: Transaction, kind: string, numbers: readonly number[]): Promise<void> {
  await tx.query(EFFECT, [a.id, a.token.toString(), a.state, kind, numbers]);
}

const deeds: Deeds = {
  begin: async (a) => {
    note<WorkerEvent>({ do: 'begin', actor: a.id, epoch: Number(a.token), visit: a.visit, state: a.state });
    const { how = 'well', times = 0, ms = 0 } = a.fields as Partial<Orders>;
    const does = a.attempt <= times ? how : 'well';
    if (does === 'throw') throw new Error('as it was told to');
    if (does === 'deaf') await sleep(1500);
    else if (does === 'block') block(ms);
    else if (how !== 'block' && ms > 0) await sleep(ms, undefined, { signal: a.signal });
    if (does === 'die') process.kill(process.pid, 'SIGKILL');
  },
  atCommit: (a, kind, numbers) => a.atCommit((tx) => write(a, tx, kind, numbers)),
  guarded: async (a) => {
    await engine.transaction(
      async (tx) => {
        await write(a, tx, 'guarded', [0]);
        await a.guard(tx);
      },
      { retries: 0 },
    );
  },
  once: async (a) => {
    await a.once('charge', 1, () => {
      note<WorkerEvent>({ do: 'once ran', actor: a.id, visit: a.visit, epoch: Number(a.token) });
      return 1;
    });
    note<WorkerEvent>({ do: 'once kept', actor: a.id, visit: a.visit, epoch: Number(a.token) });
  },
  ending: (a, to) => {
    note<WorkerEvent>({ do: 'ending', actor: a.id, epoch: Number(a.token), to });
    const { how = 'well', times = 0 } = a.fields as Partial<Orders>;
    if (how === 'throw late' && a.attempt <= times) throw new Error('as it was told to, late');
  },
};

const actors = createActors(engine, declare(deeds));
const dispatcher = actors.run({ lease: Number(LEASE), poll: 200, concurrency: Number(CONCURRENCY) });
dispatcher.events.on('error', () => {});
await dispatcher.started;
ready(async () => {
  await dispatcher.stop({ timeout: '10s' });
  await engine.stop();
});
