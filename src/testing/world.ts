import { type Actors, type AnyActorDefinition, createActors } from '../actor/index.ts';
import { checkOptions, custom, duration, func, list, oneOf, optional, text } from '../base/options/options.ts';
import { type Duration, parseDuration } from '../base/time/duration.ts';
import { type PostgresEngine, type PostgresOptions, postgres } from '../engine/postgres/index.ts';
import { Crash, POINTS } from './crash.ts';
import { PostgresWorld } from './postgres.ts';
import { DatabaseClaim } from './postgres-claim.ts';
import { snapshot } from './snapshot.ts';
import { WorldProcess } from './world-process.ts';

export interface WorldOptions {
  /** The types of actors in the world. */
  readonly actors: readonly AnyActorDefinition[];
  /**
   * A database for tests. Everything that the world makes in it is removed when the world is closed. If it has actors of another
   * program, or another world is at work in it, it is refused with `Conflict`, and left as it is. So test files that run at the same
   * time need a database each. Default: an embedded database of its own.
   */
  readonly url?: string | undefined;
  /**
   * `'everywhere'`: the scenario runs again and again. Each run crashes at the next point where a process can die (before and
   * after each claim, commit and stub), and has to end in the same state as the run without a crash.
   */
  readonly crash?: 'everywhere' | undefined;
  /** The longest time until no actor runs or is due. Default `'20s'`. */
  readonly patience?: Duration | undefined;
}

/** The argument of a scenario. */
export interface Scene {
  /** To create, raise, send and read. A dispatcher runs the turns. */
  readonly actors: Actors;
  /** Waits until no turn runs and none is due. @throws TimedOut  names the actor that runs or is due */
  readonly settle: () => Promise<void>;
  /** Lets time pass: naps, `every`, backoffs and deadlines move closer by this time, at once. Then waits like `settle()`. */
  readonly advance: (time: Duration) => Promise<void>;
}

export interface WorldReport {
  /** How often the scenario ran. */
  readonly runs: number;
  /** The number of crashes at each point. */
  readonly crashes: Readonly<Record<string, number>>;
}

const shape = {
  actors: list(
    custom('what actor() gave', (value): AnyActorDefinition => value as AnyActorDefinition),
    { min: 1 },
  ),
  url: optional(text({ min: 1 })),
  crash: optional(oneOf(['everywhere'])),
  patience: duration({ min: '1s', default: '20s' }),
};

const scenarioShape = { scenario: func<(scene: Scene) => Promise<void>>() };

/**
 * An environment for tests of actors: real actors on a real Postgres, with a clock that you can move and crashes that you can
 * cause.
 */
export function world(options: WorldOptions): World {
  return new World(checkOptions('world', options, shape));
}

interface WorldParts {
  readonly actors: readonly AnyActorDefinition[];
  readonly url: string | undefined;
  readonly crash: 'everywhere' | undefined;
  readonly patience: number;
}

/** Runs scenarios; `await using w = world({ actors })` closes it at the end of the block. */
export class World implements AsyncDisposable {
  readonly #actors: readonly AnyActorDefinition[];
  readonly #crashes: boolean;
  readonly #patienceMs: number;
  readonly #givenUrl: string | undefined;
  #home: Promise<Home> | undefined;

  /** @internal */
  constructor({ actors, url, crash, patience }: WorldParts) {
    this.#actors = actors;
    this.#crashes = crash === 'everywhere';
    this.#patienceMs = patience;
    this.#givenUrl = url;
  }

  /**
   * Runs a scenario; with `crash: 'everywhere'`, once more for every point at which it can crash.
   * @throws Conflict  the database has actors of another program, or another world is at work in it; nothing was changed
   * @throws Error  of the scenario; or an error that names the crash after which the result differed, and the difference
   */
  async run(scenario: (scene: Scene) => Promise<void>): Promise<WorldReport> {
    checkOptions('world.run', { scenario }, scenarioShape);
    const clean = await this.#play(scenario, undefined);
    const crashes: Record<string, number> = {};
    let runs = 1;
    for (const point of this.#crashes ? POINTS : []) {
      for (let nth = 1; await this.#crash(scenario, new Crash(point, nth), clean); nth += 1) {
        crashes[point] = nth;
        runs += 1;
      }
    }
    return { runs, crashes };
  }

  /** @returns true if the scenario came to that point */
  async #crash(scenario: (scene: Scene) => Promise<void>, crash: Crash, clean: string): Promise<boolean> {
    const after = await this.#play(scenario, crash).catch((cause: unknown) => {
      throw new Error(`the scenario failed when it crashed ${crash.where}: ${String(cause)}`, { cause });
    });
    if (after !== clean) {
      throw new Error(`the scenario ended otherwise when it crashed ${crash.where}:\n${after}\ninstead of\n${clean}`);
    }
    return crash.hasHappened;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Removes everything that it made, and closes everything that it opened. */
  async close(): Promise<void> {
    const home = await this.#home?.catch(() => undefined);
    this.#home = undefined;
    await home?.stop();
  }

  async #play(scenario: (scene: Scene) => Promise<void>, crash: Crash | undefined): Promise<string> {
    this.#home ??= openHome(this.#givenUrl);
    const { engine, url, claim } = await this.#home;
    await claim?.take();
    const database = new PostgresWorld(engine);
    await database.clear();
    const machine = new WorldProcess(() => postgres(url, QUIET), this.#actors, database, crash);
    try {
      await machine.start();
      const actors = createActors(engine, this.#actors);
      const settle = (): Promise<void> => machine.settle(this.#patienceMs);
      await scenario({
        actors,
        settle,
        advance: async (time) => {
          await settle();
          await database.shift(parseDuration(time, { field: 'time', what: 'advance' }));
          await settle();
        },
      });
      await settle();
      return snapshot(await database.actors());
    } finally {
      await machine.stop();
    }
  }
}

/** The database of a world. */
interface Home {
  readonly engine: PostgresEngine;
  readonly url: string;
  /** The claim of a database that was given. */
  readonly claim: DatabaseClaim | undefined;
  stop(): Promise<void>;
}

async function openHome(given: string | undefined): Promise<Home> {
  const server = given === undefined ? await startServer() : undefined;
  const url = given ?? server?.url ?? '';
  // One of them has the lock of the claim.
  const engine = postgres(url, { max: 5 });
  const claim = given === undefined ? undefined : new DatabaseClaim(engine);
  const stop = async (): Promise<void> => {
    await engine.stop();
    await server?.stop();
  };
  try {
    await claim?.check();
    await engine.migrate();
    await claim?.take();
  } catch (error) {
    await stop();
    throw error;
  }
  const giveBack = async (): Promise<void> => {
    try {
      await claim?.giveBack();
    } finally {
      await stop();
    }
  };
  return { engine, url, claim, stop: giveBack };
}

async function startServer(): Promise<{ url: string; stop(): Promise<void> }> {
  const { startEmbedded } = await import('../engine/postgres/embedded/index.ts');
  return startEmbedded({ settings: { fsync: 'off' } });
}

const silent = (): void => {};

/** A dying process logs nothing more, and closes its connections at once. */
const QUIET: PostgresOptions = {
  // A new connection must plan every function again, and each crash costs all connections.
  max: 4,
  stopTimeoutMs: 0,
  connectTimeoutMs: 5000,
  logger: { debug: silent, info: silent, warn: silent, error: silent },
};
