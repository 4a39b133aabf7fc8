import type { Bench, Context } from './harness/context.ts';
import { LocalDynamo } from './harness/dynamodb.ts';
import { atMost, figure, median } from './harness/figures.ts';
import type { Units } from './sides/dynamo-units.ts';

/** The poll interval of the idle dispatchers. */
const POLL_MS = 500;
/** Actors that are raised at the same time. */
const BATCH = 64;

interface Client {
  send(command: { readonly input: Record<string, unknown> }, options: unknown): Promise<unknown>;
}

/** A client that computes write units from the requests, because DynamoDB Local reports too few for a transaction. All rows are below 1 KB. */
function counted(client: unknown, units: Units): unknown {
  const send: Client['send'] = (command, options) => {
    const { TransactItems } = command.input;
    units.calls += 1;
    if (Array.isArray(TransactItems)) units.write += 2 * TransactItems.length;
    else if (!/^(Get|Query|Scan)/.test(command.constructor.name)) units.write += 1;
    return (client as Client).send(command, options);
  };
  return { send };
}

interface Dispatcher {
  readonly started: Promise<void>;
  stop(): Promise<void>;
}

interface PawlActors {
  create(definition: unknown, fields: object): Promise<{ readonly id: string }>;
  incr(id: string, semaphore: string): Promise<unknown>;
  get(id: string): Promise<{ readonly status: string; readonly fields: { readonly n: number } }>;
  run(options: object): Dispatcher;
}

interface Side {
  /** The requests of these actors are counted. */
  readonly actors: PawlActors;
  readonly watching: PawlActors;
  readonly units: Units;
  readonly Counter: unknown;
}

/** The built package, as a user gets it, with actors that count their raises. */
async function openSide(dynamo: LocalDynamo, table: string): Promise<Side> {
  const dist = new URL('../dist/', import.meta.url);
  const { dynamodb } = (await import(new URL('engine/dynamodb/index.js', dist).href)) as {
    dynamodb: (client: unknown, options: object) => { migrate(): Promise<unknown> };
  };
  const { actor, state, createActors } = (await import(new URL('actor/index.js', dist).href)) as {
    actor: (name: string, options: object) => unknown;
    state: (options: object) => unknown;
    createActors: (engine: unknown, definitions: readonly unknown[]) => PawlActors;
  };
  interface Turn {
    readonly fields: { readonly n: number };
    take(semaphore: string): boolean;
    hibernate(patch?: object): unknown;
  }
  const run = (a: Turn): unknown => (a.take('more') ? a.hibernate({ n: a.fields.n + 1 }) : a.hibernate());
  const Counter = actor('Counter', { semaphores: ['more'], initial: 'counts', states: { counts: state({ run }) } });
  const units: Units = { read: 0, write: 0, calls: 0, gets: 0 };
  const engine = dynamodb(counted(dynamo.client(), units), { table });
  await engine.migrate();
  const watching = createActors(dynamodb(dynamo.client(), { table }), [Counter]);
  return { actors: createActors(engine, [Counter]), watching, units, Counter };
}

/** Actors on DynamoDB: the cost of a creation, of a raise with its turn, and of sleeping actors. */
export const actorDynamodb: Bench = async (context) => {
  await using dynamo = await LocalDynamo.start();
  context.say(`DynamoDB Local ${dynamo.version}`);
  const costs = await countCosts(dynamo);
  const idle = await countIdle(context, dynamo);
  return {
    figures: {
      'write_units/create': figure('units/actor', [costs.create]),
      'write_units/raise_and_turn': figure('units/turn', [costs.alone]),
      'write_units/raise_and_turn_of_64': figure('units/turn', [costs.batch]),
      'idle_requests/none': figure('requests per poll', [idle.none]),
      'idle_requests/hibernating': figure('requests per poll', [idle.many]),
    },
    bars: { raise_and_turn: atMost(12, costs.alone), hibernating: atMost(1.2, idle.many / idle.none) },
  };
};

async function until(isTrue: () => Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await new Promise((resolve) => setTimeout(resolve, 10));
}

/** Write units of the creation of an actor, and of a raise of a semaphore together with the turn that takes it. */
async function countCosts(dynamo: LocalDynamo): Promise<{ create: number; alone: number; batch: number }> {
  const { actors, watching, units, Counter } = await openSide(dynamo, 'costs');
  await actors.create(Counter, { n: 0 });
  const before = units.write;
  const ids: string[] = [];
  for (let n = 0; n < BATCH; n += 1) ids.push((await actors.create(Counter, { n: 0 })).id);
  const create = (units.write - before) / BATCH;
  const dispatcher = actors.run({ poll: '1h', lease: '10m', concurrency: BATCH });
  await dispatcher.started;
  const isAsleep = async (id: string, n: number): Promise<boolean> => {
    const { status, fields } = await watching.get(id);
    return status === 'hibernating' && fields.n === n;
  };
  const cost = async (some: readonly string[], n: number): Promise<number> => {
    const begun = units.write;
    await Promise.all(some.map((id) => actors.incr(id, 'more')));
    for (const id of some) await until(() => isAsleep(id, n));
    // Some rows are removed only after the commit.
    await new Promise((resolve) => setTimeout(resolve, 200));
    return (units.write - begun) / some.length;
  };
  for (const id of ids) await until(() => isAsleep(id, 0));
  const alone: number[] = [];
  for (const id of ids.slice(0, 20)) alone.push(await cost([id], 1));
  const batch = await cost(ids.slice(20), 1);
  await dispatcher.stop();
  return { create, alone: median(alone), batch };
}

/** Requests of a dispatcher for each poll, without actors and with many sleeping actors. */
async function countIdle({ quick, size }: Context, dynamo: LocalDynamo): Promise<{ none: number; many: number }> {
  const count = size ?? (quick ? 500 : 10_000);
  const rates: number[] = [];
  for (const actors of [0, count]) {
    const side = await openSide(dynamo, `idle${actors}`);
    const dispatcher = side.actors.run({ poll: POLL_MS, concurrency: 100 });
    await dispatcher.started;
    let last = '';
    for (let made = 0; made < actors; made += BATCH) {
      const some = Array.from({ length: Math.min(BATCH, actors - made) }, () =>
        side.actors.create(side.Counter, { n: 0 }),
      );
      last = (await Promise.all(some)).at(-1)?.id ?? last;
    }
    if (last !== '') await until(async () => (await side.watching.get(last)).status === 'hibernating');
    await new Promise((resolve) => setTimeout(resolve, 6 * POLL_MS));
    side.units.calls = 0;
    const polls = quick ? 20 : 60;
    await new Promise((resolve) => setTimeout(resolve, polls * POLL_MS));
    rates.push(side.units.calls / polls);
    await dispatcher.stop();
  }
  const [none = 0, many = 0] = rates;
  return { none, many };
}
