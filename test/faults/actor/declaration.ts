import { type ActorDefinition, actor, type LooseFields, type Turn } from '../../../src/actor/index.ts';

export const MANNERS = [
  'well',
  /** Throws before any effect. */
  'throw',
  /** Throws after its own transactions have committed. */
  'throw late',
  /** Ignores its signal for longer than its timeout. */
  'deaf',
  /** Keeps the event loop busy. */
  'block',
  /** Kills its process. */
  'die',
] as const;

export type Manner = (typeof MANNERS)[number];

/** The orders to the bodies of an actor, in its fields. */
export interface Orders {
  /** The number that identifies the actor even if the answer with its id was lost. */
  readonly n: number;
  readonly how: Manner;
  /** In this many attempts of each visit the body follows `how`; afterwards it succeeds. */
  readonly times: number;
  readonly ms: number;
  /** The number of items of an order. */
  readonly items: number;
}

export type AnyTurn = Turn<LooseFields, 'go' | 'finish', string>;

/** The actions of the bodies in addition to their transitions. A program that only declares the types has none. */
export interface Deeds {
  /** Begins a turn: notes it, and follows its orders. */
  readonly begin: (a: AnyTurn) => Promise<void>;
  /** Writes an effect with the commit. */
  readonly atCommit: (a: AnyTurn, kind: 'effect' | 'message', numbers: readonly number[]) => void;
  /** Writes an effect in the body's own transaction, under a guard of the turn. */
  readonly guarded: (a: AnyTurn) => Promise<void>;
  readonly once: (a: AnyTurn) => Promise<void>;
  /** Notes the outcome that the turn will return. */
  readonly ending: (a: AnyTurn, to: string) => void;
}

/** The transitions of each state. */
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

/** Orders with items, and counters that add up their raises and messages. */
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
          // Earlier raises and messages are in the same claim.
          if (!a.take('finish') || messages.length >= 1000) return a.hibernate({ sum });
          ending(a, 'done');
          return a.done(sum);
        },
      }),
    }),
  });
  return [Order, Item, Counter];
}
