import { setTimeout as sleep } from 'node:timers/promises';
import { dynamodb } from 'pawl/dynamodb';
import { Child } from '../child.ts';
import { ledgerClient } from './client.ts';
import { Orders } from './orders.ts';

/** How the ledger is run. */
export interface LedgerOptions {
  /** How long without the lock. Default 2 s. */
  readonly unlockedMs?: number;
  /** How long with it. Default 4 s. */
  readonly lockedMs?: number;
  /** Is told what happens. */
  readonly log?: (line: string) => void;
}

/** Its outcome. */
export interface LedgerResult {
  /** Sums that were made without the lock, and how many of them were no state that ever was. */
  readonly sumsUnlocked: number;
  readonly wrongUnlocked: number;
  /** The same with the lock. */
  readonly sums: number;
  readonly wrong: number;
  /** Moves that were made with the lock, and of those, how many a killed process had left to the next one. */
  readonly moves: number;
  readonly finishedForOthers: number;
  readonly killed: number;
  /** The last sum, when everybody has ended, is right. */
  readonly isTotalRight: boolean;
}

const TABLE = 'pawl-ledger';
const ORDERS = 12;

/** Two processes move money between the orders of a user, a third one sums them up: first without a lock, then with it. */
export async function runLedger(endpoint: string, options: LedgerOptions = {}): Promise<LedgerResult> {
  const { unlockedMs = 2000, lockedMs = 4000, log = () => {} } = options;
  const client = ledgerClient(endpoint);
  try {
    await dynamodb(client, { table: TABLE }).migrate();
    const run = `run-${Date.now()}`;
    const without = new Phase(endpoint, new Orders(client, TABLE, `${run}-a`, ORDERS), `${run}-a`, false);
    await without.run(unlockedMs);
    log(`without the lock ${without.wrong} of ${without.sums} sums are wrong`);
    const orders = new Orders(client, TABLE, `${run}-b`, ORDERS);
    const locked = new Phase(endpoint, orders, `${run}-b`, true, log);
    await locked.run(lockedMs);
    await locked.settle();
    log(`with the lock ${locked.wrong} of ${locked.sums} sums are wrong`);
    return {
      sumsUnlocked: without.sums,
      wrongUnlocked: without.wrong,
      sums: locked.sums,
      wrong: locked.wrong,
      moves: locked.moves,
      finishedForOthers: locked.finished,
      killed: locked.killed,
      isTotalRight: (await orders.sum()) === orders.total,
    };
  } finally {
    client.destroy();
  }
}

/** On a busy machine it takes longer. */
async function within(isDone: () => boolean): Promise<void> {
  const deadline = Date.now() + 20_000;
  while (!isDone() && Date.now() < deadline) await sleep(50);
}

/** The processes at work, and what they tell. */
class Phase {
  sums: number = 0;
  wrong: number = 0;
  moves: number = 0;
  finished: number = 0;
  killed: number = 0;
  readonly #orders: Orders;
  readonly #env: Readonly<Record<string, string>>;
  readonly #isLocked: boolean;
  readonly #log: (line: string) => void;
  #isKillDue = false;

  constructor(
    endpoint: string,
    orders: Orders,
    user: string,
    isLocked: boolean,
    log: (line: string) => void = () => {},
  ) {
    this.#orders = orders;
    this.#isLocked = isLocked;
    this.#log = log;
    this.#env = {
      LEDGER_ENDPOINT: endpoint,
      LEDGER_TABLE: TABLE,
      LEDGER_USER: user,
      LEDGER_ORDERS: String(ORDERS),
      LEDGER_LOCKED: isLocked ? 'yes' : 'no',
    };
  }

  /** Half-way, with the lock, one that is moving money is killed, and replaced. */
  async run(ms: number): Promise<void> {
    await this.#orders.fill();
    const children = [this.#start('move'), this.#start('move'), this.#start('sum')];
    try {
      await Promise.all(children.map((child) => child.ready));
      await sleep(ms / 2);
      this.#isKillDue = this.#isLocked;
      await sleep(ms / 2);
      if (!this.#isLocked) {
        await within(() => this.wrong > 0);
        return;
      }
      await within(() => this.killed > 0);
      children.push(this.#start('move'));
      // The lock of a dead process is granted to another one once its lease is over.
      const { sums, moves } = this;
      await within(() => this.sums > sums + 2 && this.moves > moves);
    } finally {
      await Promise.all(children.map((child) => child.stop()));
    }
  }

  /** Whatever somebody had begun at the very end. */
  async settle(): Promise<void> {
    await this.#orders.finish(() => []);
  }

  #start(role: 'move' | 'sum'): Child {
    const child: Child = new Child(new URL('./process.js', import.meta.url), {
      env: { ...this.#env, LEDGER_ROLE: role },
      onMessage: (message) => this.#hear(message, child),
    });
    return child;
  }

  #hear(message: object, child: Child): void {
    if ('sum' in message) {
      this.sums += 1;
      if (message.sum !== this.#orders.total) this.wrong += 1;
    } else if ('moved' in message) this.moves += 1;
    else if ('finished' in message) this.finished += 1;
    else if ('moving' in message && this.#isKillDue) {
      this.#isKillDue = false;
      this.killed += 1;
      this.#log(`process ${child.pid} is killed in the middle of a move`);
      void child.kill();
    }
  }
}
