import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { until } from '../support/eventually.ts';
import { LONG } from '../support/long.ts';
import { allFinal, check, open, type Walk } from './model/walk.ts';

/** Of the statements of a walk, so many are killed at; PAWL_LONG kills at every one. */
const SAMPLE = 5;

/** What a process sends: a statement, or a step of a transaction. Not what opens a connection. */
const STATEMENT = /pawl:actor\.|insert into test_|savepoint|begin|commit\0|rollback/;

/** Counts the statements that pass from a process to its database, and stops everything at one of them. */
class Tollgate {
  url = '';
  passed = 0;
  readonly #target: URL;
  readonly #nth: number;
  readonly #answered: boolean;
  /** Called at the n-th statement, before it is sent on, or when its answer has come but was not handed over. */
  readonly #stop: () => void;
  #isStopped = false;

  constructor(databaseUrl: string, nth: number, answered: boolean, stop: () => void) {
    this.#target = new URL(databaseUrl);
    this.#nth = nth;
    this.#answered = answered;
    this.#stop = stop;
  }

  async open(): Promise<void> {
    const gate = createServer({ noDelay: true }, (client) => {
      const server = connect({ port: Number(this.#target.port || 5432), host: this.#target.hostname, noDelay: true });
      let isLast = false;
      client.on('data', (data) => {
        if (this.#isStopped) return;
        const isStatement = STATEMENT.test(data.toString('latin1'));
        if (isStatement) this.passed += 1;
        if (isStatement && this.passed === this.#nth) {
          if (!this.#answered) return this.#halt();
          isLast = true;
        }
        server.write(data);
      });
      server.on('data', (data) => {
        if (isLast) this.#halt();
        if (!this.#isStopped) client.write(data);
      });
      for (const [one, other] of [
        [client, server],
        [server, client],
      ] as const) {
        one.on('error', () => other.destroy());
        one.on('close', () => other.destroy());
      }
    });
    gate.listen(0, '127.0.0.1');
    await once(gate, 'listening');
    onTestFinished(() => void gate.close());
    const url = new URL(this.#target);
    url.host = `127.0.0.1:${(gate.address() as AddressInfo).port}`;
    this.url = url.href;
  }

  #halt(): void {
    this.#isStopped = true;
    this.#stop();
  }
}

/** A process walks until it is killed at its n-th statement. @returns how many it had sent; fewer than n when it came to the end */
async function walkAndDie(walk: Walk, nth: number, answered: boolean): Promise<number> {
  let kill = (): void => {};
  const gate = new Tollgate(walk.url, nth, answered, () => kill());
  await gate.open();
  const victim = walk.spawn({ URL: gate.url, CONCURRENCY: '1' });
  kill = () => process.kill(victim.pid, 'SIGKILL');
  let isGone = false;
  void victim.exited.then(() => {
    isGone = true;
  });
  await until('it was killed, or has walked to the end', async () => isGone || (await walk.isOver()));
  await victim.kill();
  return gate.passed;
}

// Invariants A3, A17.
test('a process is killed at single statements of a walk, before they are sent and before they are answered: no step is lost or taken twice', async () => {
  const all = await walkAndDie(await open(1), Infinity, false);
  expect(all).toBeGreaterThan(25);
  const every = LONG ? 1 : (2 * all) / SAMPLE;
  for (let at = 1; at <= 2 * all; at += every) {
    const [nth, answered] = [Math.ceil(at / 2), Math.floor(at) % 2 === 0];
    const walk = await open(1);
    const where = `killed at statement ${nth}, ${answered ? 'answered' : 'not sent'}`;
    await walkAndDie(walk, nth, answered);
    // The lease is not waited for: the process is known to be dead.
    await walk.query(`update pawl.actor_worker set expires_at = clock_timestamp() - interval '1 s'`);
    const dispatcher = await walk.run({ poll: '20ms', lease: '1s' });
    await allFinal(walk).catch((cause: unknown) => {
      throw new Error(`not all came to their end, ${where}`, { cause });
    });
    await check(walk).catch((cause: unknown) => {
      throw new Error(`something is wrong, ${where}: ${String(cause)}`, { cause });
    });
    await dispatcher.stop({ timeout: 0 });
  }
}, 1_800_000);
