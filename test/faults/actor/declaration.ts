import { type ActorDefinition, actor, type LooseFields, type Turn } from '../../../src/actor/index.ts';

export const MANNERS = [
  'well',
  /** Throws before it has done anything. */
  'throw',
  /** Throws after all that it does by itself was done. */
  'throw late',
  /** Does not listen to its signal, for longer than its timeout. */
  'deaf',
  /** Keeps the event loop busy. */
  'block',
  /** Kills its process. */
  'die',
] as const;

export type Manner = (typeof MANNERS)[number];

/** What an actor's fields tell its bodies to do. */
export interface Orders {
  /** Its number, by which it is known even where its id was never answered. */
  readonly n: number;
  readonly how: Manner;
  /** In so many attempts of each visit it does what `how` says, and afterwards what it should. */
  readonly times: number;
  readonly ms: number;
  /** How many items an order has. */
  readonly items: number;
}

export type AnyTurn = Turn<LooseFields, 'go' | 'finish', string>;

/** What the bodies do in addition to moving on; the program that only declares gives none of it. */
export interface Deeds {
  /** Begins a turn: notes it, and does what its orders say. */
  readonly begin: (a: AnyTurn) => Promise<void>;
  /** What takes effect with the commit. */
  readonly atCommit: (a: AnyTurn, kind: 'effect' | 'message', numbers: readonly number[]) => void;
  /** What takes effect in a transaction of the body's own, that asks whether the turn is still current. */
  readonly guarded: (a: AnyTurn) => Promise<void>;
  readonly once: (a: AnyTurn) => Promise<void>;
  /** Notes what the turn is to come to. */
  readonly ending: (a: AnyTurn, to: string) => void;
}

/** Where each state may lead. */
export const MACHINES: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  order: { open: ['held'], held: ['packing'], packing: ['waiting'], waiting: [] },
  item: { only: ['second'], second: [] },
  counter: { counting: [] },
};

type Definitions = readonly [
  ActorDefinition<LooseFields, 'go' | 'finish'>,
  ActorDefinition<LooseFields, 'go' | 'finish'>,
  ActorDefinition<LooseFields, 'go' | 'finish'>,
];

/** Orders with items, and counters that add up what is raised and what they are sent. */
export function declare({ begin, atCommit, guarded, once, ending }: Deeds): Definitions {
  const semaphores = ['go', 'finish'] as const;
  const common = { semaphores, backoff: { kind: 'fixed', min: 30 } } as const;
  const timeout = 1000;
  const Item = actor('item', {
    ...common,
    initial: 'only',
    states: (state) => ({
      only: state({
        to: ['second'],
        timeout,
        run: async (a) => {
          await begin(a);
          await guarded(a);
          ending(a, 'second');
          return a.to('second');
        },
      }),
      second: state({
        timeout,
        run: async (a) => {
          if (a.fields['slept'] !== true) return a.nap('20ms', { slept: true });
          await begin(a);
          atCommit(a, 'effect', [0]);
          ending(a, 'done');
          return a.done(a.fields['n']);
        },
      }),
    }),
  });
  const Order = actor('order', {
    ...common,
    initial: 'open',
    states: (state) => ({
      open: state({
        to: ['held'],
        timeout,
        run: async (a) => {
          await once(a);
          await begin(a);
          atCommit(a, 'effect', [0]);
          ending(a, 'held');
          return a.to('held');
        },
      }),
      held: state({
        to: ['packing'],
        hold: 'transaction',
        timeout,
        run: async (a) => {
          await begin(a);
          atCommit(a, 'effect', [0]);
          ending(a, 'packing');
          return a.to('packing');
        },
      }),
      packing: state({
        to: ['waiting'],
        timeout,
        run: async (a) => {
          await begin(a);
          const { items, ...orders } = a.fields as Orders;
          for (let n = 0; n < items; n += 1) await a.create(Item, { ...orders, n });
          ending(a, 'waiting');
          return a.to('waiting');
        },
      }),
      waiting: state({
        timeout,
        run: async (a) => {
          if (a.openChildren > 0) return a.hibernate();
          await begin(a);
          const results = (await a.children()).map(({ result }) => result);
          ending(a, 'done');
          return a.done(results);
        },
      }),
    }),
  });
  const Counter = actor('counter', {
    ...common,
    initial: 'counting',
    states: (state) => ({
      counting: state({
        timeout,
        run: async (a) => {
          await begin(a);
          const sum = Number(a.fields['sum'] ?? 0) + a.val('go');
          a.decr('go');
          const messages = await a.receive();
          const numbers = messages.map(({ payload }) => Number(payload));
          if (numbers.length > 0) atCommit(a, 'message', numbers);
          // All that was committed before it is in the same claim.
          if (!a.take('finish') || messages.length >= 1000) return a.hibernate({ sum });
          ending(a, 'done');
          return a.done(sum);
        },
      }),
    }),
  });
  return [Order, Item, Counter];
}
