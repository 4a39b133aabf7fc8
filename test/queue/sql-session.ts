import pg from 'pg';
import type { ClaimAnswer } from '../../src/queue/store.ts';

/** A kind for pawl.queue_register(); missing fields have their defaults. */
export interface KindRow {
  readonly name: string;
  readonly unique?: boolean;
  readonly coalesce?: 'none' | 'latest' | 'all';
  readonly after?: readonly string[];
  readonly afterError?: 'run' | 'error';
  readonly attempts?: number;
  /** What is more than unique: see sql/queue/enqueue/unique.sql. */
  readonly rule?: object;
  readonly onError?: string;
}

export interface QueueRow {
  readonly queue: number;
  readonly kinds: Readonly<Record<string, number>>;
}

export interface NewJob {
  readonly kind: number;
  readonly key?: string | null;
  readonly priority?: number;
  readonly runAt?: Date | null;
}

/** One job of a claim. */
export interface ClaimedJob {
  readonly id: number;
  readonly claim: number;
  readonly kind: number;
  readonly attempt: number;
  readonly key: string | null;
  readonly epoch: number | null;
  readonly unit: number;
}

export interface Settle {
  /** Claims whose jobs are all complete. */
  readonly whole?: readonly number[];
  readonly part?: readonly { claim: number; ids: readonly number[] }[];
  readonly fail?: readonly {
    claim: number;
    id?: number;
    /** A multirange. */
    ids?: string;
    to: 'retry' | 'release' | 'error' | 'cancelled';
    wait?: number;
    reason?: string;
    error?: string;
  }[];
  readonly keys?: readonly (readonly [key: string, epoch: number])[];
  /** Jobs whose handler has called guard(). */
  readonly guarded?: readonly number[];
}

/** A decoded claim. */
export interface Brought extends ClaimAnswer {
  readonly jobs: readonly ClaimedJob[];
}

/** The parameters of a claim. */
export interface Look {
  readonly limit?: number;
  /** How many of the jobs start at once; default: `limit`. */
  readonly slots?: number;
  readonly chain?: number;
  readonly rows?: number;
  readonly after?: readonly [priority: number, id: number];
}

/** The position that means "from the start". */
const START: readonly [number, number] = [-32_768, 0];

/** One connection that calls the functions of sql/queue like workers do, in transactions of the test. */
export class SqlSession {
  readonly client: pg.Client;
  readonly pid: number;

  static async open(url: string): Promise<SqlSession> {
    const client = new pg.Client({ connectionString: url });
    client.on('error', () => {});
    await client.connect();
    return SqlSession.of(client);
  }

  /** On a connection that its owner ends. */
  static async of(client: pg.Client): Promise<SqlSession> {
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
    return new SqlSession(client, rows[0]?.pid ?? 0);
  }

  private constructor(client: pg.Client, pid: number) {
    this.client = client;
    this.pid = pid;
  }

  async one<T = unknown>(text: string, values: unknown[] = []): Promise<T> {
    // Prepared: planning the calls of these functions a hundred thousand times would be most of a long run.
    const name = values.length > 0 ? { name: text.slice(0, 60) } : {};
    const { rows } = await this.client.query({ ...name, text, values, rowMode: 'array' });
    return rows[0]?.[0] as T;
  }

  begin(): Promise<unknown> {
    return this.client.query('begin');
  }

  commit(): Promise<unknown> {
    return this.client.query('commit');
  }

  register(name: string, kinds: readonly KindRow[], { attempts = 3 }: { attempts?: number } = {}): Promise<QueueRow> {
    const declared = {
      name,
      shards: 1,
      keyed: true,
      attempts,
      history: null,
      kinds: kinds.map((kind) => ({
        unique: false,
        coalesce: 'none',
        after: [],
        afterError: 'run',
        attempts: null,
        ...kind,
      })),
    };
    return this.one('select pawl.queue_register($1::json)', [JSON.stringify(declared)]);
  }

  /** @returns the ids, in order */
  async add(queue: number, jobs: readonly NewJob[]): Promise<number[]> {
    const keyed = jobs.some((job) => (job.key ?? null) !== null);
    const later = jobs.some((job) => (job.runAt ?? null) !== null);
    const ids = await this.one<string>(
      'select array_to_json(pawl.queue_add($1, 0::smallint, $2, $3, $4, $5, $6, $7))::text',
      [
        queue,
        jobs.length,
        jobs.map((job) => job.kind),
        jobs.map((job) => job.priority ?? 0),
        JSON.stringify(jobs.map((_, index) => index)),
        keyed ? jobs.map((job) => job.key ?? null) : null,
        later ? jobs.map((job) => job.runAt ?? null) : null,
      ],
    );
    return JSON.parse(ids);
  }

  /** @returns the worker's id */
  async addWorker(queue: number, leaseMs = 600_000): Promise<number> {
    return Number(
      await this.one(
        `insert into pawl.queue_worker (queue, pid, concurrency, lease, expires_at, hold, host)
         values ($1, 1, 10, $2::float8 * interval '1 ms', clock_timestamp() + $2::float8 * interval '1 ms', 'lease', 'test')
         returning id::text`,
        [queue, leaseMs],
      ),
    );
  }

  async claim(
    queue: number,
    worker: number,
    { limit = 10, slots = limit, chain = 32, rows = 100, after = START }: Look = {},
  ): Promise<Brought> {
    const answer = await this.one<string>(
      'select pawl.queue_claim($1::smallint, 0::smallint, $2, $3, $8, $4, $5, $6::smallint, $7)',
      [queue, worker, limit, rows, chain, after[0], after[1], slots],
    );
    const claimed = JSON.parse(answer) as ClaimAnswer;
    return { ...claimed, jobs: jobsOf(claimed) };
  }

  /** @returns the claims that no longer belonged to the worker */
  async settle(queue: number, worker: number, what: Settle): Promise<number[]> {
    return (await this.trySettle(queue, worker, what)).stale;
  }

  /** @returns also the guarded jobs: if there is one, nothing was settled */
  async trySettle(
    queue: number,
    worker: number,
    { whole = [], part, fail, keys, guarded }: Settle,
  ): Promise<{ stale: number[]; guarded: number[] }> {
    const answer = await this.one<string>(
      'select pawl.queue_settle($1::smallint, 0::smallint, $2, $3, $4, $5, null, $6, $7, p_guarded => $8)',
      [
        queue,
        worker,
        whole,
        part === undefined ? null : JSON.stringify(part),
        fail === undefined ? null : JSON.stringify(fail),
        keys === undefined ? null : keys.map(([key]) => key),
        keys === undefined ? null : keys.map(([, epoch]) => epoch),
        guarded ?? null,
      ],
    );
    const { stale, guarded: held } = JSON.parse(answer) as { stale: number[]; guarded: number[] };
    return { stale, guarded: held };
  }

  /** The keys of claimed jobs: each key once, with its epoch. */
  static keysOf(jobs: readonly ClaimedJob[]): [string, number][] {
    const keys = new Map(jobs.flatMap(({ key, epoch }) => (key === null || epoch === null ? [] : [[key, epoch]])));
    return [...keys];
  }

  complete(queue: number, worker: number, jobs: readonly ClaimedJob[]): Promise<number[]> {
    const whole = [...new Set(jobs.map((job) => job.claim))];
    return this.settle(queue, worker, { whole, keys: SqlSession.keysOf(jobs) });
  }

  /** Like unit.guard(), for units of one job. */
  guard(...jobs: readonly ClaimedJob[]): Promise<unknown> {
    const held = jobs.map(({ id, claim }) => ({ shard: 0, claim, id }));
    return this.one('select pawl.queue_guard($1::json)', [JSON.stringify(held)]);
  }

  rescue(queue: number): Promise<number> {
    return this.one('select jobs from pawl.queue_rescue($1::smallint)', [queue]);
  }

  expire(worker: number): Promise<unknown> {
    return this.client.query(
      `update pawl.queue_worker set expires_at = clock_timestamp() - interval '1 ms' where id = $1`,
      [worker],
    );
  }

  end(): Promise<void> {
    return this.client.end();
  }
}

function jobsOf({ runs, keys, chains }: ClaimAnswer): ClaimedJob[] {
  const plain = runs.flatMap(({ first, n, claim, kind, attempt }) =>
    Array.from({ length: n }, (_, i) => ({ id: first + i, claim, kind, attempt, key: null, epoch: null, unit: 0 })),
  );
  const ofKeys = keys.flatMap(({ key, epoch, ids, claims, kinds, attempts, units }) =>
    ids.map((id, i) => ({
      id,
      claim: claims[i] ?? -1,
      kind: kinds[i] ?? -1,
      attempt: attempts[i] ?? -1,
      key,
      epoch,
      unit: units?.[i] ?? 0,
    })),
  );
  const chained = (chains?.ids ?? []).map((id, i) => ({
    id,
    claim: chains?.claim ?? -1,
    kind: chains?.kinds[i] ?? -1,
    attempt: 1,
    key: chains?.keys[(chains.nth[i] ?? 0) - 1] ?? null,
    epoch: chains?.epoch ?? null,
    unit: 0,
  }));
  return [...plain, ...chained, ...ofKeys];
}
