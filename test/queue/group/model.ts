import type { Draw } from '../../support/random.ts';
import { breaches, places } from '../invariants.ts';
import { type ClaimedJob, type QueueRow, SqlSession } from '../sql-session.ts';
import { beginsOf } from './begins.ts';

/** Everything that a job of a group may come across, by turns of several sessions of which one may leave its transaction open. */
const MOVES = {
  enqueue: 6,
  'enqueue many': 3,
  claim: 8,
  complete: 8,
  fail: 3,
  'back off': 4,
  release: 2,
  crash: 1,
  cancel: 2,
  retry: 2,
  update: 3,
  'let time pass': 3,
  limit: 1,
} as const;

type Move = keyof typeof MOVES;

const GROUPS = ['a', 'b', 'c'] as const;
const HOUR = 3_600_000;

/** Time passes by hours, so the rate of each is used by itself. */
const RATE = { limit: 3, perMs: HOUR };

/** What a queue is declared with. */
export interface Variant {
  readonly keyed: boolean;
  readonly rated?: boolean;
}

interface Player {
  readonly session: SqlSession;
  worker: number;
  holding: ClaimedJob[];
}

/** A transaction that is open, and what becomes of the player with it. */
interface Open {
  readonly player: Player;
  readonly move: Move;
  readonly job: number | undefined;
  /** By which it has admitted jobs. */
  readonly limit: number;
  readonly undo: () => void;
}

/** Random schedules on a real database. After each step that is committed every place is where it belongs. */
export class GroupModel {
  readonly #draw: Draw;
  readonly #witness: SqlSession;
  readonly #players: Player[];
  readonly #row: QueueRow;
  readonly #name: string;
  readonly #variant: Variant;
  #limit = 2;
  /** When time passed last, by the server's clock. */
  #passedAtUs = 0;
  #open: Open | undefined;
  readonly #log: string[] = [];
  #taken = new Map<string, number>();

  static async start(sessions: readonly SqlSession[], name: string, draw: Draw, variant: Variant): Promise<GroupModel> {
    const [witness, ...rest] = sessions;
    if (witness === undefined) throw new Error('there is no session');
    const row = await declare(witness, name, 2, variant);
    const players: Player[] = [];
    for (const session of rest) players.push({ session, worker: await witness.addWorker(row.queue), holding: [] });
    return new GroupModel(witness, players, row, name, draw, variant);
  }

  private constructor(
    witness: SqlSession,
    players: Player[],
    row: QueueRow,
    name: string,
    draw: Draw,
    variant: Variant,
  ) {
    this.#witness = witness;
    this.#players = players;
    this.#row = row;
    this.#name = name;
    this.#draw = draw;
    this.#variant = variant;
  }

  async play(steps: number): Promise<void> {
    try {
      for (let step = 0; step < steps; step += 1) await this.#step();
      await this.#end();
      await this.#drain();
    } catch (error) {
      throw new Error(`${String(error)}\n${this.#log.join('\n')}`, { cause: error });
    }
  }

  async #step(): Promise<void> {
    if (this.#open !== undefined && this.#draw.chance(0.35)) return this.#end();
    const others = this.#players.filter((player) => player !== this.#open?.player);
    const player = this.#draw.pick(...(others as [Player]));
    const move = this.#draw.weighted(MOVES);
    // One claim at a time may be under way in a shard, and one statement about a job.
    if (this.#open?.move === 'claim' && move === 'claim') return;
    const staysOpen =
      this.#open === undefined && !['crash', 'limit', 'let time pass'].includes(move) && this.#draw.chance(0.4);
    if (!staysOpen) {
      this.#log.push(move);
      await this.#do(move, player);
      return this.#check();
    }
    const before = [...player.holding];
    await player.session.begin();
    const job = await this.#do(move, player);
    this.#log.push(`${move}, which stays open`);
    this.#open = { player, move, job, limit: this.#limit, undo: () => void (player.holding = before) };
  }

  async #end(): Promise<void> {
    if (this.#open === undefined) return;
    const { player, limit, undo } = this.#open;
    this.#open = undefined;
    const isUndone = this.#draw.chance(0.4);
    this.#log.push(isUndone ? 'rolled back' : 'committed');
    await player.session.client.query(isUndone ? 'rollback' : 'commit');
    if (isUndone) undo();
    await this.#check(limit);
  }

  /** @returns the job that it was about */
  async #do(move: Move, player: Player): Promise<number | undefined> {
    const { session } = player;
    switch (move) {
      case 'enqueue':
        await session.one('select pawl.enqueue($1::jsonb)', [JSON.stringify(this.#job())]);
        return;
      case 'enqueue many':
        await this.#addMany(session);
        return;
      case 'claim': {
        const limit = this.#draw.int(1, 4);
        const { jobs } = await session.claim(this.#row.queue, player.worker, { limit, chain: this.#draw.int(1, 3) });
        player.holding.push(...jobs);
        return;
      }
      case 'complete':
      case 'fail':
      case 'back off':
      case 'release':
        return this.#settle(move, player);
      case 'crash':
        return this.#crash(player);
      case 'cancel':
      case 'retry':
      case 'update':
        return this.#change(move, session);
      case 'let time pass':
        await this.#letTimePass();
        return;
      case 'limit': {
        this.#limit = this.#draw.int(1, 3);
        this.#log.push(`limit ${this.#limit}`);
        await declare(session, this.#name, this.#limit, this.#variant);
        return;
      }
    }
  }

  #job(): object {
    const { chance, int, pick } = bound(this.#draw);
    return {
      queue: this.#name,
      kind: 'job',
      group: chance(0.85) ? pick(...GROUPS) : undefined,
      key: chance(0.3) ? pick('k', 'l') : undefined,
      priority: int(-1, 1),
      delay: chance(0.2) ? '1 hour' : undefined,
      tags: chance(0.1) ? ['tag'] : undefined,
    };
  }

  async #addMany(session: SqlSession): Promise<void> {
    const n = this.#draw.int(2, 9);
    const options = Array.from({ length: n }, () =>
      this.#draw.chance(0.9) ? { group: this.#draw.pick(...GROUPS) } : null,
    );
    await session.one('select pawl.queue_add($1, 0::smallint, $2, $3, $4, $5, null, null, $6)::text', [
      this.#row.queue,
      n,
      [this.#row.kinds['job']],
      [0],
      JSON.stringify(options.map((_, index) => index)),
      JSON.stringify(options),
    ]);
  }

  /** The first of a key alone, as workers do. */
  async #settle(move: Move, player: Player): Promise<number | undefined> {
    const { session, worker, holding } = player;
    const heads = holding.filter(
      ({ key, id }) => !holding.some((other) => other.key === key && key !== null && other.id < id),
    );
    if (heads.length === 0) return;
    const job = this.#draw.pick(...(heads as [ClaimedJob]));
    const isLast = job.key !== null && holding.filter(({ key }) => key === job.key).length === 1;
    const keys = isLast ? SqlSession.keysOf([job]) : undefined;
    const to = move === 'fail' ? 'error' : move === 'release' ? 'release' : 'retry';
    const wait = move === 'back off' ? HOUR : 0;
    const what =
      move === 'complete'
        ? { part: [{ claim: job.claim, ids: [job.id] }] }
        : { fail: [{ claim: job.claim, id: job.id, to, wait, error: 'no' } as const] };
    // What follows of a key must not run before it.
    if (move !== 'complete' && move !== 'fail' && !isLast && job.key !== null) return;
    await session.settle(this.#row.queue, worker, { ...what, ...(keys !== undefined && { keys }) });
    player.holding = holding.filter(({ id }) => id !== job.id);
    return job.id;
  }

  async #crash(player: Player): Promise<undefined> {
    await player.session.expire(player.worker);
    await player.session.rescue(this.#row.queue);
    player.holding = [];
    player.worker = await this.#witness.addWorker(this.#row.queue);
  }

  async #change(move: 'cancel' | 'retry' | 'update', session: SqlSession): Promise<number | undefined> {
    const id = await this.#witness.one<string | undefined>(
      `select j.id::text from pawl.queue_job j where j.queue = $1 and j.id <> $2 order by hashint8(j.id * $3) limit 1`,
      [this.#row.queue, this.#open?.job ?? 0, this.#draw.int(1, 100_000)],
    );
    if (id === undefined) return;
    const rest =
      move === 'update' ? { priority: this.#draw.int(-1, 1), ...(this.#draw.chance(0.3) && { delay: '1 hour' }) } : {};
    await session.client.query('savepoint change').catch(() => {});
    try {
      await session.one(`select pawl.${move}($1::jsonb)`, [JSON.stringify({ id, ...rest })]);
      this.#log.push(`${move} ${id} ${JSON.stringify(rest)}`);
    } catch (error) {
      if (!['PW001', 'PW002', 'PW003', '55P03'].includes(String(Reflect.get(Object(error), 'code')))) throw error;
      await session.client.query('rollback to savepoint change').catch(() => {});
    }
    return Number(id);
  }

  async #letTimePass(): Promise<void> {
    const held = this.#open?.job ?? 0;
    await this.#witness.client.query(
      `update pawl.queue_delayed set run_at = clock_timestamp() - interval '1 ms' where ctid = any (array(
         select d.ctid from pawl.queue_delayed d where d.queue = $1 and d.id <> $2 for update skip locked))`,
      [this.#row.queue, held],
    );
    if (this.#variant.rated !== true) return;
    // Of what an open transaction has, no time passes: it counts for longer.
    for (const [table, ...times] of [
      ['queue_permit', 'used_at'],
      ['queue_rate', 'tat', 'due_at'],
    ] as const) {
      await this.#witness.client.query(
        `update pawl.${table} set ${times.map((time) => `${time} = ${time} - interval '1 hour'`).join()} where ctid = any (array(
           select o.ctid from pawl.${table} o where o.queue = $1 for update skip locked))`,
        [this.#row.queue],
      );
    }
    this.#passedAtUs = await this.#witness.one<number>(
      'select (extract(epoch from clock_timestamp()) * 1000000)::float8',
    );
  }

  /** @param before  the limit when the transaction began that was committed last */
  async #check(before: number = 0): Promise<void> {
    const wrong = await breaches(this.#witness.client);
    const { rows } = await this.#witness.client.query<{ name: string; taken: number }>(
      `select group_name as name, count(*)::int as taken from pawl.queue_place where queue = $1 group by 1`,
      [this.#row.queue],
    );
    // Where the limit was lowered, as many may go on as there were.
    for (const { name, taken } of rows) {
      if (taken > Math.max(this.#limit, before, this.#taken.get(name) ?? 0))
        wrong.push(`group ${name} has ${taken} places`);
    }
    this.#taken = new Map(rows.map(({ name, taken }) => [name, taken]));
    if (this.#variant.rated === true) {
      for (const group of GROUPS) {
        const begins = await beginsOf(this.#witness.client, this.#name, group);
        const since = begins.filter(({ atUs }) => atUs > this.#passedAtUs).length;
        if (since > RATE.limit) wrong.push(`${since} runs of group ${group} have begun in an hour`);
      }
    }
    if (wrong.length > 0) throw new Error(wrong.join('; '));
  }

  /** All that is left runs, and every place is given back. */
  async #drain(): Promise<void> {
    this.#log.push('drain');
    for (let quiet = 0; quiet < 3; ) {
      for (const player of this.#players) {
        while (player.holding.length > 0) await this.#settle('complete', player);
      }
      await this.#letTimePass();
      const [first] = this.#players;
      if (first === undefined) return;
      await this.#do('claim', first);
      quiet = first.holding.length === 0 ? quiet + 1 : 0;
      await this.#check();
    }
    const { complete: _, dead: __, ...left } = await places(this.#witness.client, this.#row.queue);
    const taken = await this.#witness.one<number>('select count(*)::int from pawl.queue_place where queue = $1', [
      this.#row.queue,
    ]);
    if (Object.keys(left).length > 0 || taken > 0)
      throw new Error(`left are ${JSON.stringify(left)} and ${taken} places`);
  }
}

function declare(
  session: SqlSession,
  name: string,
  perGroup: number,
  { keyed, rated = false }: Variant,
): Promise<QueueRow> {
  const kind = { name: 'job', unique: false, coalesce: 'none', after: [], afterError: 'run', attempts: null };
  return session.one('select pawl.queue_register($1::json)', [
    JSON.stringify({
      name,
      shards: 1,
      keyed,
      attempts: 50,
      perGroup,
      rate: rated ? RATE : null,
      history: null,
      kinds: [kind],
    }),
  ]);
}

function bound(draw: Draw): Pick<Draw, 'chance' | 'int' | 'pick'> {
  return {
    chance: (probability) => draw.chance(probability),
    int: (from, to) => draw.int(from, to),
    pick: (first, ...others) => draw.pick(first, ...others),
  };
}
