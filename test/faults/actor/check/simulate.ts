import { Draw } from '../../../support/random.ts';
import type { ActorHistory, ActorRequest, Begun, Effect, Ending, Instance, Move, Once } from '../history.ts';

/** Bugs of simulated actors. */
export const BUGS = [
  'a move is made that was not declared',
  'a move is made that no body made',
  'a late commit is believed',
  'an effect is written without its commit',
  'an effect is written twice',
  'a guard lets pass what is late',
  'an epoch is given twice',
  'a raise is lost',
  'a raise counts twice',
  'a message is lost',
  'a message is read twice',
  'a child is born twice',
  'a parent does not wait',
  'a kept effect is run again',
  'what was created is gone',
] as const;

export type Bug = (typeof BUGS)[number];

type Writable<T> = { -readonly [K in keyof T]: T[K] };

interface Path {
  readonly from: string;
  readonly to: string;
  readonly hasEffect: boolean;
}

const PATHS: Readonly<Record<string, readonly Path[]>> = {
  order: [
    { from: 'open', to: 'held', hasEffect: true },
    { from: 'held', to: 'packing', hasEffect: true },
    { from: 'packing', to: 'waiting', hasEffect: false },
    { from: 'waiting', to: 'done', hasEffect: false },
  ],
  item: [
    { from: 'only', to: 'second', hasEffect: false },
    { from: 'second', to: 'done', hasEffect: true },
  ],
};

/** A legal history of actors; or, with a bug, a history that shows the bug if the bug has an effect in it. */
export function simulate(seed: number, bug?: Bug): ActorHistory {
  return new Simulation(new Draw(seed, 'history'), bug).run();
}

/** Actors live one after another: the rules compare only parents with their children. */
class Simulation {
  readonly #draw: Draw;
  readonly #bug: Bug | undefined;
  readonly #begun: Begun[] = [];
  readonly #endings: Ending[] = [];
  readonly #onces: Once[] = [];
  readonly #instances: Writable<Instance>[] = [];
  readonly #moves: Move[] = [];
  readonly #effects: Effect[] = [];
  readonly #asked: ActorRequest[] = [];
  readonly #orders: string[] = [];
  #ids = 0;
  #now = 0;

  constructor(draw: Draw, bug: Bug | undefined) {
    this.#draw = draw;
    this.#bug = bug;
  }

  run(): ActorHistory {
    for (let n = this.#draw.int(1, 3); n > 0; n -= 1) this.#liveOrder();
    for (let n = this.#draw.int(1, 2); n > 0; n -= 1) this.#liveCounter();
    return {
      begun: this.#begun,
      endings: this.#endings,
      onces: this.#onces,
      instances: this.#instances,
      moves: this.#moves,
      effects: this.#effects,
      asked: this.#asked,
      orders: this.#orders,
      complaints: [],
    };
  }

  #has(bug: Bug): boolean {
    return this.#bug === bug;
  }

  #liveOrder(): void {
    const items = this.#draw.int(1, 4);
    const order = this.#create('order', 'open', null, items);
    if (this.#draw.chance(0.8)) this.#orders.push(order.id);
    if (this.#has('what was created is gone')) {
      this.#orders.push('gone');
    }
    const children: Writable<Instance>[] = [];
    for (const path of PATHS['order'] ?? []) {
      if (path.from === 'waiting') for (const child of children) this.#walk(child, PATHS['item'] ?? []);
      this.#visit(order, path);
      if (path.from !== 'packing') continue;
      const born = items + (this.#has('a child is born twice') ? 1 : 0);
      for (let n = 0; n < born; n += 1) {
        children.push(this.#create('item', 'only', order.id, 0));
      }
    }
    order.result = Array.from({ length: items }, (_, n) => n);
    order.isFinal = true;
    const [first] = children;
    if (this.#has('a parent does not wait') && first !== undefined) first.isFinal = false;
  }

  #walk(one: Writable<Instance>, paths: readonly Path[]): void {
    for (const path of paths) this.#visit(one, path);
    one.isFinal = true;
  }

  #create(type: string, state: string, parent: string | null, items: number): Writable<Instance> {
    this.#ids += 1;
    const one = { id: String(this.#ids), type, state, parent, epoch: 0, isFinal: false, result: null, items };
    this.#instances.push(one);
    this.#move(one, null, state, 'created', 0);
    return one;
  }

  /** Turns of one state, until one of them is committed. */
  #visit(one: Writable<Instance>, path: Path): void {
    const isLate = this.#lateTurns(one, path);
    one.epoch += 1;
    const { epoch } = one;
    this.#begin(one, epoch, path.from);
    if (path.from === 'only') this.#effect(one, epoch, path.from, 'guarded');
    if (path.from === 'open') this.#once(one, epoch);
    if (!this.#has('a move is made that no body made')) this.#end(one, epoch, path.to);
    if (path.hasEffect) {
      this.#effect(one, epoch, path.from, 'effect');
      if (this.#has('an effect is written twice')) this.#effect(one, epoch, path.from, 'effect');
    }
    const to = this.#has('a move is made that was not declared') && path.from === 'open' ? 'waiting' : path.to;
    const state = to === 'done' ? path.from : to;
    this.#move(one, path.from, state, to === 'done' ? 'done' : 'to', epoch);
    one.state = state;
    for (const late of isLate) this.#late(one, path, late);
  }

  /** Turns without a commit: they throw, time out, or are lost. @returns the epochs of lost turns whose processes still run */
  #lateTurns(one: Writable<Instance>, path: Path): number[] {
    const living: number[] = [];
    for (let n = this.#draw.pick(0, 0, 0, 1, 2, 3); n > 0; n -= 1) {
      one.epoch += 1;
      const { epoch } = one;
      const hasBegun = this.#draw.chance(0.9);
      if (hasBegun) this.#begin(one, epoch, path.from);
      if (hasBegun && path.from === 'only' && this.#draw.chance(0.5)) this.#effect(one, epoch, path.from, 'guarded');
      if (hasBegun && path.from === 'open' && this.#draw.chance(0.5)) this.#once(one, epoch);
      if (this.#draw.chance(0.4)) this.#end(one, epoch, path.to);
      if (this.#has('an effect is written without its commit')) this.#effect(one, epoch, path.from, 'effect');
      const how = this.#draw.weighted({ failed: 4, 'timed out': 1, 'worker lost': 4, released: 2 });
      if (how === 'worker lost') one.epoch += 1;
      // A turn that is given back leaves no row.
      if (how !== 'released') this.#move(one, path.from, path.from, how, one.epoch);
      if (how === 'worker lost' && this.#draw.chance(0.1)) this.#move(one, path.from, path.from, 'held', one.epoch);
      if (how === 'worker lost' && hasBegun) living.push(epoch);
    }
    return living;
  }

  /** The steps of a process that was declared dead and does not know it yet. */
  #late(one: Writable<Instance>, path: Path, epoch: number): void {
    if (this.#draw.chance(0.5)) this.#end(one, epoch, path.to);
    // The process read the kept results before it was suspended, and found none.
    const isKept = this.#onces.some((once) => once.actor === one.id && once.how === 'kept' && once.epoch < epoch);
    if (path.from === 'open' && !isKept && this.#draw.chance(0.3)) {
      this.#onces.push({ actor: one.id, visit: 1, epoch, how: 'ran' });
    }
    if (this.#has('a guard lets pass what is late')) this.#effect(one, epoch, path.from, 'guarded');
    if (this.#has('a late commit is believed')) this.#move(one, path.from, path.to, 'to', epoch);
  }

  #liveCounter(): void {
    const counter = this.#create('counter', 'counting', null, 0);
    let sum = 0;
    const unread: number[] = [];
    for (let n = this.#draw.int(2, 12); n > 0; n -= 1) {
      const isCertain = this.#draw.chance(0.7);
      const counts = isCertain || this.#draw.chance(0.5);
      const what = this.#draw.pick('raise', 'send');
      this.#asked.push({ actor: counter.id, what, n, isCertain });
      if (counts && what === 'raise') sum += 1;
      if (counts && what === 'send') unread.push(n);
    }
    if (this.#has('a raise is lost'))
      sum = this.#asked.filter((one) => one.actor === counter.id && one.what === 'raise' && one.isCertain).length - 1;
    if (this.#has('a raise counts twice'))
      sum = this.#asked.filter((one) => one.actor === counter.id && one.what === 'raise').length + 1;
    if (this.#has('a message is lost')) unread.splice(0);
    while (unread.length > 0) {
      counter.epoch += 1;
      this.#begin(counter, counter.epoch, 'counting');
      // A turn that fails reads no message.
      if (this.#draw.chance(0.2)) {
        this.#move(counter, 'counting', 'counting', 'failed', counter.epoch);
        continue;
      }
      for (const n of unread.splice(0, this.#draw.int(1, 3))) {
        this.#message(counter, n);
        if (this.#has('a message is read twice')) this.#message(counter, n);
      }
    }
    counter.epoch += 1;
    this.#begin(counter, counter.epoch, 'counting');
    this.#end(counter, counter.epoch, 'done');
    this.#move(counter, 'counting', 'counting', 'done', counter.epoch);
    counter.isFinal = true;
    counter.result = sum;
  }

  #message({ id, epoch }: Instance, n: number): void {
    this.#effects.push({ actor: id, epoch, state: 'counting', kind: 'message', n, committedAt: this.#tick() });
  }

  #begin({ id }: Instance, epoch: number, state: string): void {
    this.#begun.push({ actor: id, epoch, state });
    if (this.#has('an epoch is given twice')) this.#begun.push({ actor: id, epoch, state });
  }

  #end({ id }: Instance, epoch: number, to: string): void {
    this.#endings.push({ actor: id, epoch, to });
  }

  #once({ id }: Instance, epoch: number): void {
    const isKept = this.#onces.some(({ actor, how }) => actor === id && how === 'kept');
    if (!isKept || this.#has('a kept effect is run again'))
      this.#onces.push({ actor: id, visit: 1, epoch, how: 'ran' });
    if (isKept || this.#draw.chance(0.7)) this.#onces.push({ actor: id, visit: 1, epoch, how: 'kept' });
  }

  #effect({ id }: Instance, epoch: number, state: string, kind: Effect['kind']): void {
    this.#effects.push({ actor: id, epoch, state, kind, n: 0, committedAt: this.#tick() });
  }

  #move({ id }: Instance, from: string | null, to: string, reason: string, epoch: number): void {
    this.#moves.push({ actor: id, epoch, from, to, reason, committedAt: this.#tick() });
  }

  #tick(): number {
    this.#now += this.#draw.int(1, 5);
    return this.#now;
  }
}
