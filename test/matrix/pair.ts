import pg from 'pg';
import { until } from '../support/eventually.ts';
import { type Caller, type Move, one } from './move.ts';

/** The outcome of a move that was made while the transaction of another one was open. */
export type WaitOutcome =
  | 'no'
  /** Until the other transaction ended. */
  | 'yes'
  /** For a time that it had set itself; then it went on without, or gave up in words. */
  | 'for a moment';

/** How the transaction of a move ends that others may wait for. */
export const ENDINGS = ['commit', 'rollback', 'its backend is killed'] as const;
export type Ending = (typeof ENDINGS)[number];

/** SQLSTATEs of answers that are no fault: the move was refused in words, or what it was for is somebody else's by now. */
const REFUSED = /^(PW\d\d\d|55P03)$/;
const CANCELLED = '57014';

/** Three connections to one database: for the move that is left open, for the one that meets it, and for the onlooker. */
export class Pair {
  readonly #url: string;
  readonly #second: Client;
  readonly #witness: Client;
  #first: Client;
  /** Whether the second one is in a transaction that has not done anything. */
  #isSecondOpen = false;

  private constructor(url: string, clients: readonly [Client, Client, Client]) {
    this.#url = url;
    [this.#first, this.#second, this.#witness] = clients;
  }

  static async open(url: string): Promise<Pair> {
    return new Pair(url, [await connect(url), await connect(url), await connect(url)]);
  }

  /** Makes the first move and leaves its transaction open. One that is refused holds nothing. */
  async begin<Side>(move: Move<Side>, side: Side): Promise<void> {
    await this.#first.client.query('begin');
    try {
      await move.run(callerOf(this.#first), side);
    } catch (error) {
      if (!isRefusal(error)) throw error;
      await this.#first.client.query('rollback; begin');
    }
  }

  /** Ends the transactions of both without a trace. */
  async undo(): Promise<void> {
    await Promise.all([this.#first.client.query('rollback'), this.#second.client.query('rollback')]);
    this.#isSecondOpen = false;
  }

  /** Makes the second move meanwhile, and undoes it. @returns whether it waited */
  meet<Side>(move: Move<Side>, side: Side): Promise<Exclude<WaitOutcome, 'for a moment'>> {
    return this.#try(move, side, async (running) => {
      if ((await this.#watch(running)) === 'over') return 'no';
      await this.#witness.client.query('select pg_cancel_backend($1)', [this.#second.pid]);
      return 'yes';
    });
  }

  /** The same with one that ends by itself, however long the first one is open. */
  outlast<Side>(move: Move<Side>, side: Side): Promise<void> {
    return this.#try(move, side, async (running) => {
      await until('it has ended by itself', () => running.isOver);
    });
  }

  async #try<Side, T>(move: Move<Side>, side: Side, look: (running: Running) => Promise<T>): Promise<T> {
    if (!this.#isSecondOpen) await this.#second.client.query('begin');
    this.#isSecondOpen = true;
    const running = new Running(move.run(callerOf(this.#second), side));
    try {
      return await look(running);
    } finally {
      await running.ended([CANCELLED]);
      // Of thousands of meetings, each begins what the next one needs: a round trip less.
      await this.#second.client.query('rollback; begin');
    }
  }

  /** Plays both for good: the first is open while the second begins, and ends then. Both have ended when it resolves. */
  async play<Side>(
    moves: readonly [Move<Side>, Move<Side>],
    sides: readonly [Side, Side],
    ending: Ending,
  ): Promise<void> {
    await this.begin(moves[0], sides[0]);
    const running = new Running(this.#whole(moves[1], sides[1]));
    await this.#watch(running);
    if (ending === 'its backend is killed') await this.#kill();
    else await this.#first.client.query(ending);
    await running.ended([]);
  }

  /** The invariants that a capability has, asked for by the onlooker. */
  get witness(): pg.ClientBase {
    return this.#witness.client;
  }

  async close(): Promise<void> {
    await Promise.all([this.#first, this.#second, this.#witness].map(({ client }) => client.end().catch(() => {})));
  }

  /** The second move, with the end of its transaction if it is made in one. */
  async #whole<Side>(move: Move<Side>, side: Side): Promise<void> {
    const { client } = this.#second;
    if (move.open === 'statement') return void (await move.run(callerOf(this.#second), side));
    await client.query('begin');
    try {
      await move.run(callerOf(this.#second), side);
      await client.query(move.isHalf === true ? 'rollback' : 'commit');
    } catch (error) {
      await client.query('rollback');
      throw error;
    }
  }

  /** Until the second move has ended, or waits for the first. Most end at once: the witness is asked of the others. */
  async #watch(running: Running): Promise<'over' | 'waits'> {
    await running.overWithin(20);
    return until('the second move has ended, or waits for the first', async () => {
      if (running.isOver) return 'over';
      return (await this.#isBlocked()) ? 'waits' : undefined;
    });
  }

  async #isBlocked(): Promise<boolean> {
    const text = 'select $2::int = any (pg_blocking_pids($1))';
    return (await one(this.#witness.client, text, [this.#second.pid, this.#first.pid])) === true;
  }

  async #kill(): Promise<void> {
    await this.#witness.client.query('select pg_terminate_backend($1)', [this.#first.pid]);
    await this.#first.client.end().catch(() => {});
    this.#first = await connect(this.#url);
  }
}

/** A move that is under way. */
class Running {
  isOver = false;
  readonly #end: Promise<Error | undefined>;

  constructor(move: Promise<unknown>) {
    const note = (error?: unknown): Error | undefined => {
      this.isOver = true;
      return error === undefined || error instanceof Error
        ? error
        : new Error('not an error was thrown', { cause: error });
    };
    this.#end = move.then(() => note(), note);
  }

  async overWithin(ms: number): Promise<void> {
    await Promise.race([this.#end, new Promise((resolve) => setTimeout(resolve, ms))]);
  }

  /** @throws what it failed with, unless that is a refusal, or one of these codes */
  async ended(codes: readonly string[]): Promise<void> {
    const error = await this.#end;
    if (error === undefined) return;
    if (!isRefusal(error) && !codes.includes(codeOf(error))) throw error;
  }
}

function isRefusal(error: unknown): boolean {
  return REFUSED.test(codeOf(error));
}

/** The server's, also of an error that Pawl made of it. */
function codeOf(error: unknown): string {
  if (error instanceof pg.DatabaseError) return error.code ?? '';
  return error instanceof Error && error.cause !== undefined ? codeOf(error.cause) : '';
}

interface Client {
  readonly client: pg.Client;
  readonly pid: number;
}

async function connect(connectionString: string): Promise<Client> {
  const client = new pg.Client({ connectionString });
  client.on('error', () => {});
  await client.connect();
  return { client, pid: Number(await one(client, 'select pg_backend_pid()')) };
}

function callerOf({ client }: Client): Caller {
  return { client, one: (text, values) => one(client, text, values) };
}
