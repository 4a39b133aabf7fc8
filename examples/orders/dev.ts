import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'pawl/capture';
import { statement } from 'pawl/postgres';
import { Child } from '../child.ts';
import type { DevContext, DevExample, Figures } from '../dev-example.ts';
import { declareOrders, orderRows } from './orders.ts';
import { SCHEMA, seedText } from './schema.ts';

const QUERIES = ['warranty smith', 'warranty card', 'pump porto', '"call before delivery"', 'overheats'];
/** Of so many searches the times are kept. */
const REMEMBERED = 10_000;
/** Enough for an index to be worth its place. */
const ORDERS = 20_000;

type OrderDeclaration = ReturnType<typeof declareOrders>;

/**
 * 17 tables of a warranty business, two applications that change them, two processes that keep a search table, one of which is
 * killed; and somebody who searches all the time.
 */
export class OrdersDev implements DevExample {
  readonly name = 'orders';
  readonly #context: DevContext;
  readonly #orders: number;
  readonly #took: number[] = [];
  #workers: Child[] = [];
  #writers: Child[] = [];
  #declared: OrderDeclaration | undefined;
  #isFilled = false;

  constructor(context: DevContext) {
    this.#context = context;
    this.#orders = context.orders ?? ORDERS;
  }

  async start(): Promise<void> {
    const { engine, signal } = this.#context;
    if (signal.aborted) return;
    await engine.session(async (session) => {
      await session.run(`drop schema if exists shop cascade; ${SCHEMA}; ${seedText(this.#orders)}`);
      await session.run('analyze');
    });
    this.#declared = declareOrders(engine);
    await this.#declared.capture.apply();
    this.#context.show?.({ captures: [this.#declared.capture] });
    this.#workers = [this.#start('worker.ts'), this.#start('worker.ts')];
    this.#writers = [this.#start('writer.ts', '1'), this.#start('writer.ts', '2')];
    await Promise.all([...this.#workers, ...this.#writers].map(({ ready }) => ready));
    this.#context.log(
      `orders: ${this.#orders} orders in 17 tables; two applications change them, two workers keep them searchable`,
    );
  }

  async feed(ending: AbortSignal): Promise<void> {
    if (this.#declared === undefined) return;
    // All at once: an error of one that is not awaited yet would be lost.
    await Promise.all([this.#fill(this.#declared, ending), this.#killOne(ending), this.#searchOn(ending)]);
  }

  async finish(): Promise<Figures> {
    if (this.#declared === undefined) return { ok: true, rows: 0, diff: 0 };
    const { engine } = this.#context;
    const { projection } = this.#declared;
    const working = this.#writers.every(({ isRunning }) => isRunning);
    await Promise.all(this.#writers.map((writer) => writer.stop()));
    if (!this.#isFilled) await projection.backfill();
    await projection.settled();
    for (let i = 0; i < 20; i += 1) await this.#search('warranty card');
    const [found] = await engine.query<{ rows: number; diff: number }>(DIFFERENCE);
    const sorted = this.#took.toSorted((a, b) => a - b);
    const searchP95Ms = Math.round(sorted[Math.floor(sorted.length * 0.95)] ?? 0);
    const { rows = 0, diff = -1 } = found ?? {};
    this.#context.log(`orders: ${rows} rows, ${diff} of them wrong; 95 % of searches within ${searchP95Ms} ms`);
    return { ok: working && diff === 0 && rows > 0, rows, diff, searchP95Ms };
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#workers, ...this.#writers].map((child) => child.stop()));
  }

  /** While the writers go on. */
  async #fill({ projection }: OrderDeclaration, ending: AbortSignal): Promise<void> {
    const signal = AbortSignal.any([ending, this.#context.signal]);
    await projection.backfill({ batch: 1000, signal }).then(
      () => {
        this.#isFilled = true;
      },
      (error: unknown) => {
        if (!signal.aborted) throw error; // broken off: finish() goes on with it
      },
    );
  }

  #start(script: string, seed = '1'): Child {
    const env = { DATABASE_URL: this.#context.url, ORDERS: String(this.#orders), SEED: seed };
    return new Child(new URL(`./${script.replace('.ts', EXTENSION)}`, import.meta.url), { env });
  }

  /** In the middle, one worker gets no chance to tidy up. */
  async #killOne(ending: AbortSignal): Promise<void> {
    await sleep(2000, undefined, { signal: ending }).catch(() => {});
    const [victim, ...others] = this.#workers;
    if (victim === undefined) return;
    await victim.kill();
    const heir = this.#start('worker.ts');
    this.#workers = [heir, ...others];
    await heir.ready;
    this.#context.log(`orders: worker ${victim.pid} was killed, ${heir.pid} goes on`);
  }

  async #searchOn(ending: AbortSignal): Promise<void> {
    for (let turn = 0; !ending.aborted; turn += 1) {
      await this.#search(QUERIES[turn % QUERIES.length] ?? '');
      await sleep(100, undefined, { signal: ending }).catch(() => {});
    }
  }

  async #search(query: string): Promise<void> {
    const since = performance.now();
    await this.#declared?.projection.search(query);
    this.#took.push(performance.now() - since);
    if (this.#took.length > REMEMBERED) this.#took.shift();
  }
}

/** As this file was compiled, or not. */
const EXTENSION = import.meta.url.endsWith('.ts') ? '.ts' : '.js';

/** Every row of the search table next to the row that it should be, built again from all tables. */
const DIFFERENCE = statement(
  'orders.difference',
  `
with want as (${orderRows(sql``).text}), have as (
  select s.id, s.customer, s.placed_at, s.status, s.contact, s.items, s.notes, s.shipments, s.paid from shop.order_search s)
select (select count(*)::int from have) as rows, (
  select count(*)::int from want w full join have h on h.id = w.id
  where (w.id, w.customer, w.placed_at, w.status, w.contact, w.items, w.notes, w.shipments, w.paid)
    is distinct from (h.id, h.customer, h.placed_at, h.status, h.contact, h.items, h.notes, h.shipments, h.paid)) as diff`,
);
