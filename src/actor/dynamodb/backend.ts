import { NotSupported } from '../../base/errors.ts';
import { type Loop, startLoop } from '../../base/loop.ts';
import { now } from '../../base/time/clock.ts';
import { LeaseKeeper } from '../../base/work/lease-keeper.ts';
import type { DynamoEngine } from '../../engine/dynamodb/index.ts';
import type { ActorBackend } from '../backend.ts';
import type { ActorDefinition } from '../definition.ts';
import type { KeeperPort, LeaseHolder, RescueListener, TurnWriter } from '../work/ports.ts';
import { DynamoActorOperator, dynamoOperator } from './operate/operator.ts';
import { DynamoActorReader } from './operate/reader.ts';
import { sweepPages } from './pages/sweep.ts';
import { DynamoActorStore } from './store.ts';

const RESCUE_MS = 5000;
/** How often a process sweeps pages, and removes final actors. */
const SWEEP_MS = 60_000;

/** Actors on DynamoDB. @throws NotSupported  a type declares a feature that DynamoDB does not support */
export function dynamoBackend(
  engine: DynamoEngine,
  definitions: readonly ActorDefinition[],
  shards: number,
): ActorBackend {
  for (const definition of definitions) refuse(definition);
  const store = new DynamoActorStore(engine, shards);
  const operator = new DynamoActorOperator(store);
  const reader = new DynamoActorReader(store, operator);
  const writer: TurnWriter = {
    commit: (worker, { settled, effects }) => store.commitWith(worker, settled, effects),
    hold: () => Promise.reject(new NotSupported("DynamoDB does not support hold: 'transaction'")),
  };
  return {
    store,
    reader,
    notices: reader,
    operator: dynamoOperator(operator, store),
    connections: Infinity,
    ports: (leaseMs) => ({ store, keeper: new DynamoKeeper(store, leaseMs), writer }),
    byHand: (leaseMs) => ({ store, keeper: new DynamoKeeper(store, leaseMs), writer }),
  };
}

function refuse({ name, states, indexes, fieldHistoryMs }: ActorDefinition): void {
  const no = (what: string, why: string): NotSupported =>
    new NotSupported(`actors on DynamoDB have no ${what}: ${name} declares it, but ${why}`);
  if (indexes.length > 0) throw no('index', 'fields cannot be searched there: keep a table of your own');
  if (fieldHistoryMs !== undefined) throw no('fieldHistory', 'only transitions are kept there');
  for (const state of states.values()) {
    if (state.hold === 'transaction') throw no("hold: 'transaction'", 'no transaction stays open there: use a lease');
  }
}

/** Keeps the leases of workers by heartbeats, which write their rows, and rescues the actors of dead workers. */
class DynamoKeeper implements KeeperPort {
  readonly #store: DynamoActorStore;
  readonly #leaseMs: number;
  readonly #lease: LeaseKeeper<LeaseHolder, { readonly alive: readonly number[] }>;
  readonly #listeners = new Set<RescueListener>();
  #chores: Loop | undefined;
  #deadlines: Loop | undefined;
  #sweptAt: number = now() - SWEEP_MS / 2;

  constructor(store: DynamoActorStore, leaseMs: number) {
    this.#store = store;
    this.#leaseMs = leaseMs;
    this.#lease = new LeaseKeeper<LeaseHolder, { readonly alive: readonly number[] }>({
      name: 'actor',
      leaseMs,
      send: async (workers) => ({ alive: await store.beat([...workers.keys()]) }),
      // Each request has a time limit of its own.
      giveUp: () => {},
    });
  }

  get hasLease(): boolean {
    return this.#lease.hasLease;
  }

  get problem(): string | undefined {
    return this.#lease.problem;
  }

  add(worker: LeaseHolder, watcher?: RescueListener): void {
    this.#lease.add(worker);
    if (watcher === undefined) return;
    this.#listeners.add(watcher);
    const onError = (error: unknown): void => this.#lease.report(error);
    this.#chores ??= startLoop({ name: 'actor.rescue', run: () => this.#runChores(), onError, unref: true });
    this.#deadlines ??= startLoop({ name: 'actor.deadlines', run: () => this.#checkDeadlines(), onError, unref: true });
  }

  async remove(worker: LeaseHolder): Promise<void> {
    if (!this.#lease.remove(worker)) return;
    const ending = [this.#lease, this.#chores, this.#deadlines];
    this.#chores = undefined;
    this.#deadlines = undefined;
    this.#listeners.clear();
    await Promise.all(ending.map(async (one) => one?.stop()));
  }

  async #runChores(): Promise<number> {
    const { actors, suspects } = await this.#store.rescue();
    for (const watcher of this.#listeners) {
      if (suspects.length > 0) watcher.suspected(suspects);
      if (actors > 0) watcher.rescued();
    }
    if (now() - this.#sweptAt > SWEEP_MS) {
      await sweepPages(this.#store.rows, this.#store.pages);
      // Removes actors in several runs of this loop, so that a stop need not wait for all of them.
      if ((await this.#store.removal.check()) > 0) return 0;
      this.#sweptAt = now();
    }
    return Math.min(RESCUE_MS, this.#leaseMs / 2) * (0.75 + Math.random() / 2);
  }

  async #checkDeadlines(): Promise<number> {
    return Math.min(await this.#store.deadlines.check(), RESCUE_MS) * (0.75 + Math.random() / 2);
  }
}
