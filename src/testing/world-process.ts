import { type AnyActorDefinition, createActors, type Dispatcher } from '../actor/index.ts';
import { TimedOut } from '../base/errors.ts';
import { moment, sleep, waitedFor } from '../base/time/clock.ts';
import { formatDuration } from '../base/time/duration.ts';
import type { PostgresEngine } from '../engine/postgres/index.ts';
import type { Crash } from './crash.ts';
import type { PostgresWorld } from './postgres.ts';

const LOOK_MS = 10;
/**
 * Only the world ends a process, and does so at once. The lease is long, so that no process loses it while a database hangs for
 * seconds.
 */
const LEASE = '1m';

/** The process that runs turns in a world. It dies at the crash, and another one takes its place. */
export class WorldProcess {
  readonly #connect: () => PostgresEngine;
  readonly #actors: readonly AnyActorDefinition[];
  readonly #database: PostgresWorld;
  readonly #crash: Crash | undefined;
  readonly #ended: Promise<unknown>[] = [];
  #engine: PostgresEngine | undefined;
  #dispatcher: Dispatcher | undefined;
  #isDead = false;

  constructor(
    connect: () => PostgresEngine,
    actors: readonly AnyActorDefinition[],
    database: PostgresWorld,
    crash: Crash | undefined,
  ) {
    this.#connect = connect;
    this.#actors = actors;
    this.#database = database;
    this.#crash = crash;
  }

  async start(): Promise<void> {
    await this.#boot();
    this.#crash?.arm(() => this.#die());
  }

  /** Waits until no turn runs and none is due. If this process has died, starts another one. */
  async settle(patienceMs: number): Promise<void> {
    const begun = moment();
    for (;;) {
      if (this.#isDead) await this.#reboot(patienceMs);
      const restless = await this.#database.restless();
      if (restless === undefined && !this.#isDead) return;
      if (waitedFor(begun) > patienceMs) {
        throw new TimedOut(
          `the actors did not become idle within ${formatDuration(patienceMs)}: ${restless ?? 'the process is dead'}`,
        );
      }
      await sleep(LOOK_MS);
    }
  }

  async stop(): Promise<void> {
    this.#crash?.disarm();
    await this.#dispatcher?.stop({ timeout: 0 });
    await this.#engine?.stop();
    await Promise.all(this.#ended);
  }

  async #boot(): Promise<void> {
    const engine = this.#connect();
    const dispatcher = createActors(engine, this.#actors).run({ poll: '20ms', lease: LEASE, concurrency: 2 });
    this.#engine = engine;
    this.#dispatcher = dispatcher;
    await dispatcher.started;
  }

  /** Breaks its connections at once, as for a killed process; its timers and promises have no effect. */
  #die(): void {
    this.#isDead = true;
    this.#crash?.disarm();
    this.#dispatcher?.abandon();
    if (this.#engine !== undefined) this.#ended.push(this.#engine.stop());
    this.#engine = undefined;
    this.#dispatcher = undefined;
  }

  async #reboot(patienceMs: number): Promise<void> {
    await Promise.all(this.#ended);
    this.#isDead = false;
    await this.#database.rescue(patienceMs);
    await this.#boot();
  }
}
