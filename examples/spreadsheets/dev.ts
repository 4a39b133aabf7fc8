import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Child } from '../child.ts';
import type { DevContext, DevExample, Figures } from '../dev-example.ts';
import { Folder } from '../folder.ts';
import { Random } from '../random.ts';
import { Accidents } from './accidents.ts';
import { Client } from './client.ts';
import { Feed } from './feed.ts';
import type { Written } from './handlers.ts';
import { inspect } from './inspection.ts';
import { Ledger } from './ledger.ts';
import { PostgresStore } from './postgres/store.ts';
import { readSamples } from './samples.ts';
import { type Exit, Staff } from './staff.ts';
import type { ObservedStore } from './store.ts';
import { signToken } from './token.ts';

const BACK_ENDS = 2;
const REPORT_MS = 2000;
/** How long the back ends may take, after the last request, to finish what was asked for. */
const DRAIN_MS = 60_000;
/** From how many requests in one file on it is worth a line. */
const WORTH_TELLING = 5;

/** How it is run; the store takes the place of the database. */
export type SpreadsheetsContext = Omit<DevContext, 'engine' | 'url'>;

/** What `start` sets up. */
interface Running {
  readonly frontEnd: Child;
  readonly staff: Staff;
  readonly client: Client;
  readonly feed: Feed;
}

/** A front end and two back ends as processes of their own, a stream of requests, and somebody who kills back ends. */
export class SpreadsheetsDev implements DevExample {
  readonly name = 'spreadsheets';
  readonly #context: SpreadsheetsContext;
  readonly #store: ObservedStore;
  readonly #env: Readonly<Record<string, string>>;
  readonly #random: Random;
  readonly #ledger: Ledger;
  readonly #problems: string[] = [];
  readonly #begun = performance.now();
  #folder: Folder | undefined;
  #frontEnd: Child | undefined;
  #staff: Staff | undefined;
  #running: Running | undefined;
  #files = 0;
  #accidents: Accidents | undefined;

  /** @param env  by which its processes find the store */
  constructor(context: SpreadsheetsContext, store: ObservedStore, env: Readonly<Record<string, string>>) {
    this.#context = context;
    this.#store = store;
    this.#env = env;
    this.#random = new Random(context.seed);
    this.#ledger = new Ledger(store);
  }

  static onPostgres(context: DevContext): SpreadsheetsDev {
    const store = new PostgresStore(context.engine);
    context.show?.({ queues: [store.queue] });
    return new SpreadsheetsDev(context, store, { DATABASE_URL: context.url });
  }

  async start(): Promise<void> {
    const { port = 0 } = this.#context;
    await this.#store.prepare();
    this.#folder = await Folder.open(this.#context, 'spreadsheets');
    const secret = randomBytes(32).toString('hex');
    const env = {
      ...this.#env,
      SPREADSHEETS_DIR: this.#folder.path,
      SPREADSHEETS_SECRET: secret,
      PORT: String(port),
    };
    this.#frontEnd = new Child(new URL('./front-end.js', import.meta.url), {
      env,
      onLine: (line) => this.#onLine(line),
    });
    this.#staff = new Staff({
      env,
      random: this.#random,
      size: BACK_ENDS,
      onWritten: (written) => this.#onWritten(written),
      onGone: (gone) => void this.#onGone(gone),
    });
    const [ready, samples] = await Promise.all([this.#frontEnd.ready, this.#samples(), this.#staff.start()]);
    const address = 'url' in ready ? String(ready.url) : '';
    const client = new Client(address, await signToken(secret, 'pawl dev'));
    const feed = new Feed({
      client,
      ledger: this.#ledger,
      random: this.#random,
      samples,
      log: (line) => this.#log(line),
    });
    this.#running = { frontEnd: this.#frontEnd, staff: this.#staff, client, feed };
    this.#accidents = new Accidents(this.#store, this.#staff);
    this.#accidents.offer(this.#context);
    this.#welcome(address, await signToken(secret, 'you'));
  }

  async feed(signal: AbortSignal): Promise<void> {
    const { feed, staff } = this.#isRunning();
    const ending = new AbortController();
    const both = AbortSignal.any([signal, ending.signal]);
    const feeding = feed.run(both).catch((error: unknown) => {
      this.#problems.push(String(error));
      ending.abort();
    });
    await Promise.all([feeding, staff.killSome(both), this.#report(both)]);
  }

  async finish(): Promise<Figures> {
    const { client, feed, staff } = this.#isRunning();
    await this.#accidents?.undo();
    this.#log(`no more requests; ${this.#ledger.outstanding} are still to be done`);
    await this.#drain();
    const wrong = await inspect(client, feed.expected);
    const doubleRuns = await this.#store.countDoubleRuns();
    const { enqueued, complete, error, outstanding: lost } = this.#ledger;
    this.#problems.push(...wrong);
    // A run that was to prove something must have had something to do.
    const isProof = enqueued > 0 || this.#context.signal.aborted;
    const ok = isProof && this.#problems.length === 0 && complete === enqueued && doubleRuns === 0;
    for (const problem of this.#problems) this.#log(`problem: ${problem}`);
    this.#log(`opened ${feed.expected.length} files and compared every cell: ${wrong.length} wrong`);
    return {
      ok,
      enqueued,
      complete,
      error,
      lost,
      doubleRuns,
      workersKilled: staff.killed,
      filesChecked: feed.expected.length,
      ...(this.#problems.length > 0 ? { problems: this.#problems } : {}),
    };
  }

  async stop(): Promise<void> {
    await Promise.all([this.#frontEnd?.stop(), this.#staff?.stop()]);
    await this.#folder?.close();
  }

  /** Where spreadsheets of an earlier run are kept, new ones get names that say which run they are of. */
  async #samples(): ReturnType<typeof readSamples> {
    const samples = await readSamples();
    if (await this.#store.isEmpty()) return samples;
    const run = Date.now().toString(36);
    return samples.map((sample) => ({ ...sample, id: `${sample.id}-${run}` }));
  }

  async #drain(): Promise<void> {
    const deadline = performance.now() + DRAIN_MS;
    for (;;) {
      await this.#ledger.refresh();
      if (this.#ledger.outstanding === 0) return;
      if (performance.now() > deadline) {
        this.#problems.push(
          `${this.#ledger.outstanding} requests were not done ${DRAIN_MS / 1000} s after the last one`,
        );
        return;
      }
      await sleep(50);
    }
  }

  async #report(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(REPORT_MS, undefined, { signal }).catch(() => {});
      await this.#ledger.refresh();
      const { enqueued, complete, error, outstanding } = this.#ledger;
      const errors = error > 0 ? `, ${error} in error` : '';
      this.#log(
        `${enqueued} requests: ${complete} done${errors}, ${outstanding} outstanding; ${this.#files} files written`,
      );
    }
  }

  #onWritten({ id, version, requests }: Written): void {
    this.#files += 1;
    if (requests >= WORTH_TELLING) this.#log(`${id} v${version}: ${requests} updates, one unit, one file`);
  }

  async #onGone({ pid, how, lastWords }: Exit): Promise<void> {
    if (how === 'told') {
      this.#log(`back end ${pid} was told to end by somebody else; starting another`);
      return;
    }
    if (how === 'broke') {
      this.#log(`back end ${pid} ended by itself; starting another`);
      this.#problems.push(`back end ${pid} ended by itself: ${lastWords}`);
      return;
    }
    const ids = await this.#store.interruptedBy(pid).catch(() => []);
    const middle = ids.length === 0 ? 'between two files' : `in the middle of ${ids.join(', ')}`;
    this.#log(`killed back end ${pid} (SIGKILL) ${middle}; starting another`);
  }

  #onLine(line: string): void {
    if (!line.startsWith('front end ')) this.#log(line);
  }

  #welcome(address: string, token: string): void {
    const log = (line: string): void => this.#context.log(line);
    log(`spreadsheets: a front end and ${BACK_ENDS} back ends are running`);
    log(`  front end ${address}`);
    log(
      `  files     ${this.#folder?.path}${this.#folder?.isTemporary === true ? ' (temporary: gone when this ends)' : ''}`,
    );
    log(`  try next  TOKEN=${token}`);
    log(`            curl -H "Authorization: Bearer $TOKEN" ${address}/spreadsheets/countries`);
    log(`            curl -H "Authorization: Bearer $TOKEN" ${address}/spreadsheets/countries/file -o countries.xlsx`);
  }

  #log(line: string): void {
    const seconds = ((performance.now() - this.#begun) / 1000).toFixed(1);
    this.#context.log(`${seconds.padStart(6)} s  ${line}`);
  }

  #isRunning(): Running {
    if (this.#running === undefined) throw new Error('start() first');
    return this.#running;
  }
}
