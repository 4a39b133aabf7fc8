import { expect } from 'vitest';
import { SqlSession } from '../../queue/sql-session.ts';

/** What the owner's turn comes to. */
export type Ending = 'hibernate' | 'ignore' | 'to' | 'failed';

export interface Row {
  readonly id: number;
  readonly epoch: number;
  readonly state: string;
  readonly children: number;
  readonly go: number;
}

/** Six sessions on one database: a director, two workers, and those who raise. */
export class Stage {
  readonly #sessions: SqlSession[];
  readonly taken: number[] = [];
  readonly seen: Row[] = [];

  constructor(sessions: SqlSession[]) {
    this.#sessions = sessions;
  }

  static async open(url: string): Promise<Stage> {
    const stage = new Stage(await Promise.all(Array.from({ length: 6 }, () => SqlSession.open(url))));
    const machine = JSON.stringify({ initial: 'only', always: {}, states: { only: { to: ['only'] } } });
    const type = {
      name: 'thing',
      semaphores: ['go'],
      always: [],
      machine: JSON.parse(machine),
      version: 1,
      history: null,
      backoff: [1, 1, 1, 0],
    };
    await stage.at(0).one('select pawl.actor_register($1)', [JSON.stringify([type])]);
    for (const worker of [1, 2]) {
      await stage.at(0).client.query(
        `insert into pawl.actor_worker (id, pid, concurrency, lease, expires_at, wants_notify, host, types, knows)
         values (${worker}, 1, 1, '1 h', clock_timestamp() + interval '1 h', true, 'test', '{1}', '{"1": {"only": 1, "$version": 1}}')`,
      );
    }
    // A step that is blocked by a semaphore, or blocks one, fails.
    for (const producer of [3, 4]) await stage.at(producer).client.query(`set lock_timeout = '2s'`);
    return stage;
  }

  at(index: number): SqlSession {
    const session = this.#sessions[index];
    if (session === undefined) throw new Error(`there is no session ${index}`);
    return session;
  }

  async clear(): Promise<void> {
    this.taken.length = 0;
    this.seen.length = 0;
    await this.at(0).client.query(
      'delete from pawl.actor_instance; delete from pawl.actor_inbox; delete from pawl.actor_transition',
    );
  }

  create(parent?: number): Promise<number> {
    const head = { type: 'thing', parent };
    return this.at(0)
      .one<{ id: string }>('select pawl.actor_create_json($1)', [JSON.stringify([head, {}])])
      .then(({ id }) => Number(id));
  }

  async claim(worker: number): Promise<Row[]> {
    const answer = await this.at(worker).one<string>('select pawl.actor_claim($1, $2, 10)', [worker, [1]]);
    const { rows } = JSON.parse(answer) as {
      rows: [number, number, string, number, number, number, number, number, number, number, Record<string, number>][];
    };
    const read = rows.map(([id, , state, , epoch, , , children, , , semaphores]) => ({
      id,
      epoch,
      state,
      children,
      go: semaphores['go'] ?? 0,
    }));
    this.seen.push(...read);
    return read;
  }

  /** @returns whether it was still the worker's */
  async end(worker: number, row: Row, ending: Ending | 'done'): Promise<boolean> {
    const takes = (ending === 'hibernate' || ending === 'to') && row.go > 0;
    const kind = ending === 'hibernate' || ending === 'ignore' ? 'stay' : ending;
    const wait = ending === 'to' ? 0 : ending === 'failed' ? 0 : null;
    const answer = await this.at(worker).one<string>(
      'select pawl.actor_commit($1, $2, $3, $4, $5, $6, $7, null, null, null, $8, null, null, null, null)',
      [
        worker,
        [row.id],
        [row.epoch],
        [kind],
        [wait],
        [row.state],
        [ending === 'to' ? 'only' : null],
        [takes ? JSON.stringify({ go: -row.go }) : null],
      ],
    );
    const { stale } = JSON.parse(answer) as { stale: number[] };
    if (stale.length === 0 && takes) this.taken.push(row.go);
    return stale.length === 0;
  }

  incr(producer: number, actor: number): Promise<boolean> {
    return this.at(producer).one('select pawl.actor_incr($1)', [JSON.stringify({ actor, semaphore: 'go' })]);
  }

  /** Runs whatever is due until nothing is. */
  async drain(worker: number): Promise<number> {
    let turns = 0;
    for (let quiet = 0; quiet < 2; ) {
      const rows = await this.claim(worker);
      quiet = rows.length === 0 ? quiet + 1 : 0;
      for (const row of rows) await this.end(worker, row, 'hibernate');
      turns += rows.length;
      expect(turns).toBeLessThan(50);
    }
    return turns;
  }

  async close(): Promise<void> {
    await Promise.all(this.#sessions.map((session) => session.end()));
  }
}
