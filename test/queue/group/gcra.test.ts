import { afterAll, beforeAll, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { MODELS } from '../../support/long.ts';
import { Draw } from '../../support/random.ts';
import { type QueueRow, SqlSession } from '../sql-session.ts';
import { excesses } from './begins.ts';

let database: FreshDatabase;
let session: SqlSession;

beforeAll(async () => {
  database = await freshDatabase();
  session = await SqlSession.open(database.url);
});

afterAll(async () => {
  await session.end();
  await database.drop();
});

const MOVES = { enqueue: 3, 'let time pass': 6, look: 6, begin: 6, end: 4, drop: 1 } as const;
const BASE = `timestamptz '2030-01-01 00:00:00+00'`;

/** What GCRA says of one group, from all that has begun. */
class Reference {
  readonly begun: number[] = [];
  /** Admitted, and not begun. */
  readonly open: number[] = [];
  readonly running: number[] = [];
  readonly ended: number[] = [];
  /** Left without a run: these count from the next time on that jobs are admitted. */
  dropped: number = 0;
  readonly #limit: number;
  readonly #stepUs: number;
  readonly #counted: number[] = [];

  constructor(limit: number, perMs: number) {
    this.#limit = limit;
    this.#stepUs = Math.ceil((perMs * 1000) / limit);
  }

  begin(job: number, now: number): void {
    this.open.splice(this.open.indexOf(job), 1);
    this.running.push(job);
    this.begun.push(now);
    this.#counted.push(now);
  }

  drop(job: number): void {
    this.open.splice(this.open.indexOf(job), 1);
    this.dropped += 1;
  }

  look(now: number): void {
    for (; this.dropped > 0; this.dropped -= 1) this.#counted.push(now);
  }

  /** How many may begin at once besides those that are admitted. */
  room(now: number): number {
    let tat = -Infinity;
    for (const at of this.#counted.toSorted((a, b) => a - b)) tat = Math.max(tat, at) + this.#stepUs;
    let room = -this.open.length - this.dropped;
    for (let then = Math.max(tat, now) + this.#stepUs; then <= now + this.#limit * this.#stepUs; then += this.#stepUs) {
      room += 1;
    }
    return room;
  }
}

/** A queue whose clock the test moves. */
class Scene {
  readonly groups: ReadonlyMap<string, Reference>;
  readonly limit: number;
  readonly perMs: number;
  now: number = 0;
  readonly #row: QueueRow;
  readonly #draw: Draw;

  static async open(name: string, draw: Draw): Promise<Scene> {
    const [limit, perMs] = [draw.int(1, 7), draw.pick(1000, 3333, 60_000)];
    const kind = { name: 'job', unique: false, coalesce: 'none', after: [], afterError: 'run', attempts: null };
    const row = await session.one<QueueRow>('select pawl.queue_register($1::json)', [
      JSON.stringify({
        name,
        shards: 1,
        keyed: true,
        attempts: 3,
        rate: { limit, perMs },
        history: null,
        kinds: [kind],
      }),
    ]);
    return new Scene(row, draw, limit, perMs);
  }

  private constructor(row: QueueRow, draw: Draw, limit: number, perMs: number) {
    this.#row = row;
    this.#draw = draw;
    this.limit = limit;
    this.perMs = perMs;
    this.groups = new Map(['a', 'b'].map((name) => [name, new Reference(limit, perMs)]));
  }

  async step(): Promise<void> {
    const [name, group] = this.#draw.pick(...([...this.groups] as [[string, Reference], ...[string, Reference][]]));
    switch (this.#draw.weighted(MOVES)) {
      case 'enqueue':
        return this.#enqueue(name, this.#draw.int(1, 6));
      case 'let time pass':
        this.now += this.#draw.int(0, Math.ceil((this.perMs * 1000 * this.#draw.pick(0.1, 1, 3)) / this.limit));
        return;
      case 'look':
        return this.look();
      case 'begin':
        for (const job of this.#draw.some(group.open, this.#draw.int(1, 3))) {
          group.begin(job, this.now);
          await session.one(
            `select pawl.queue_use_permits(0::smallint, array[$1::bigint], array[1], ${BASE} + $2::float8 * interval '1 us')`,
            [job, this.now],
          );
        }
        return;
      case 'end':
        for (const job of group.running.splice(0, this.#draw.int(1, 3))) await this.#leave(job);
        return;
      case 'drop':
        for (const job of group.open.slice(0, 1)) {
          group.drop(job);
          await this.#leave(job);
        }
    }
  }

  async #enqueue(group: string, n: number): Promise<void> {
    await session.one('select pawl.queue_add($1, 0::smallint, $2, $3, array[0::smallint], $4, null, null, $5)::text', [
      this.#row.queue,
      n,
      [this.#row.kinds['job']],
      JSON.stringify(Array.from({ length: n }, () => 1)),
      JSON.stringify(Array.from({ length: n }, () => ({ group }))),
    ]);
  }

  #leave(job: number): Promise<unknown> {
    return session.one(
      'select pawl.queue_leave_places(0::smallint, int8multirange(int8range($1::bigint, $1::bigint + 1)))',
      [job],
    );
  }

  /** Nothing that has room waits, and nothing was admitted without room. */
  async look(): Promise<void> {
    await session.one(`select pawl.queue_admit($1, 0::smallint, ${BASE} + $2::float8 * interval '1 us')`, [
      this.#row.queue,
      this.now,
    ]);
    for (const [name, group] of this.groups) {
      const known = new Set([...group.open, ...group.running]);
      const { rows } = await session.client.query<{ id: string }>(
        'select id::text from pawl.queue_place where queue = $1 and group_name = $2 order by id',
        [this.#row.queue, name],
      );
      group.look(this.now);
      group.open.push(...rows.map(({ id }) => Number(id)).filter((id) => !known.has(id)));
      const waiting = await session.one<number>(
        'select count(*)::int from pawl.queue_grouped where queue = $1 and group_name = $2',
        [this.#row.queue, name],
      );
      const room = group.room(this.now);
      expect(room).toBeGreaterThanOrEqual(0);
      if (waiting > 0) expect(room).toBeLessThanOrEqual(0);
    }
  }
}

const SEEDS = Number(process.env['PAWL_SCHEDULES'] ?? (MODELS ? 40 : 5));
const SEED = Number(process.env['PAWL_SEED'] ?? 1);

test('J22: whenever jobs are admitted, begin late or never, a group uses its rate as GCRA says, and all of it', async () => {
  for (let seed = SEED; seed < SEED + SEEDS; seed += 1) {
    const scene = await Scene.open(`gcra ${seed}`, new Draw(seed, 'gcra'));
    for (let step = 0; step < 120; step += 1) {
      await scene.step().catch((error: unknown) => {
        throw new Error(`seed ${seed}, step ${step}: ${String(error)}`, { cause: error });
      });
    }
    for (const { begun } of scene.groups.values()) expect(excesses(begun, scene)).toEqual([]);
  }
});
