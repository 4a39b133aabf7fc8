import { expect } from 'vitest';
import { SqlSession } from '../../queue/sql-session.ts';

/** One move of a random schedule. Which actor, producer, worker or turn is meant: the given number, modulo those there are. */
export type Move =
  | { readonly do: 'create'; readonly parent: number | undefined }
  | { readonly do: 'incr'; readonly actor: number; readonly n: number; readonly producer: number | undefined }
  | { readonly do: 'send'; readonly actor: number }
  | { readonly do: 'end'; readonly producer: number; readonly commits: boolean }
  | { readonly do: 'claim'; readonly worker: number; readonly limit: number }
  | { readonly do: 'claim alone'; readonly worker: number }
  | { readonly do: 'commit'; readonly turn: number; readonly how: How; readonly takes: boolean }
  | { readonly do: 'crash' | 'lose the answer'; readonly worker: number }
  | { readonly do: 'commit too late'; readonly turn: number }
  | { readonly do: 'pause' | 'resume'; readonly actor: number | undefined }
  | { readonly do: 'let time pass' };

export type How = 'hibernate' | 'nap' | 'to' | 'failed' | 'released' | 'done' | 'child';

interface Turn {
  readonly actor: number;
  readonly epoch: number;
  readonly worker: number;
  /** What the claim answered. */
  readonly go: number;
}

/** What is true of an actor, as far as anybody was told. */
interface KnownActor {
  raised: number;
  taken: number;
  /** Of transactions that are open. */
  readonly open: Map<number, number>;
  readonly parent: number | undefined;
  children: number;
  epoch: number;
  isFinal: boolean;
  isPaused: boolean;
  /** Something was committed that no claim has seen. */
  hasNews: boolean;
  /** Its last child has ended, which no claim has seen; of no interest once it has another one. */
  isAlone: boolean;
  /** Turns in a row that were lost with their worker: at two it is claimed alone, at three it is held. */
  lost: number;
}

const PRODUCERS = 2;
const WORKERS = 3;

/** Actors on a real database, next to a plain account of what has to be true of them. */
export class Model {
  readonly #session: SqlSession;
  readonly #producers: readonly SqlSession[];
  readonly #workers: number[] = [];
  readonly #actors = new Map<number, KnownActor>();
  readonly #isOpen: boolean[] = Array.from({ length: PRODUCERS }, () => false);
  #turns: Turn[] = [];
  #late: Turn[] = [];
  #isTypePaused = false;

  private constructor(session: SqlSession, producers: readonly SqlSession[]) {
    this.#session = session;
    this.#producers = producers;
  }

  static sessions(url: string): Promise<SqlSession[]> {
    return Promise.all(Array.from({ length: 1 + PRODUCERS }, () => SqlSession.open(url)));
  }

  /** An empty database, as far as actors go. */
  static async start([session, ...producers]: readonly SqlSession[]): Promise<Model> {
    if (session === undefined) throw new Error('a model needs a session');
    for (const producer of producers) await producer.client.query('rollback');
    await session.client.query(
      `delete from pawl.actor_instance; delete from pawl.actor_inbox; delete from pawl.actor_message;
       delete from pawl.actor_worker; delete from pawl.actor_transition; update pawl.actor_type set paused_at = null`,
    );
    const machine = { initial: 'only', always: {}, states: { only: { to: ['only'] } } };
    const type = {
      name: 'thing',
      semaphores: ['go'],
      always: [],
      machine,
      version: 1,
      history: null,
      backoff: [1, 1, 1, 0],
    };
    await session.one('select pawl.actor_register($1)', [JSON.stringify([type])]);
    const model = new Model(session, producers);
    for (let n = 0; n < WORKERS; n += 1) model.#workers.push(await model.#addWorker());
    await model.play({ do: 'create', parent: undefined });
    return model;
  }

  async play(move: Move): Promise<void> {
    switch (move.do) {
      case 'create':
        return this.#create(move.parent === undefined ? undefined : this.#pick(move.parent));
      case 'incr':
        return this.#incr(this.#pick(move.actor), move.n, move.producer);
      case 'send':
        return this.#send(this.#pick(move.actor));
      case 'end':
        return this.#end(move.producer, move.commits);
      case 'claim':
        await this.#claim(move.worker, move.limit);
        return;
      case 'claim alone':
        await this.#claimAlone(move.worker);
        return;
      case 'commit': {
        const [turn] = this.#turns.splice(move.turn % Math.max(this.#turns.length, 1), 1);
        return turn === undefined ? undefined : this.#commit(turn, move.how, move.takes);
      }
      case 'crash':
        return this.#crash(move.worker);
      case 'lose the answer':
        return this.#lose(move.worker);
      case 'commit too late': {
        const turn = this.#late[move.turn % Math.max(this.#late.length, 1)];
        if (turn !== undefined) expect((await this.#write(turn, 'done', null)).stale).toEqual([turn.actor]);
        return;
      }
      case 'pause':
      case 'resume':
        return this.#pause(move.actor === undefined ? undefined : this.#pick(move.actor), move.do === 'resume');
      case 'let time pass':
        await this.#session.client.query(
          `update pawl.actor_instance set wake_at = wake_at - interval '1 h', floor_at = floor_at - interval '1 h'`,
        );
    }
  }

  /** Ends what is open, lets everything run that is due without anybody's help, and looks whether anything was forgotten. */
  async drain(): Promise<void> {
    for (let producer = 0; producer < PRODUCERS; producer += 1) await this.#end(producer, true);
    // The second time for actors that were held meanwhile.
    for (const id of [...this.#actors.keys(), ...this.#actors.keys()]) await this.#pause(id, true);
    await this.#pause(undefined, true);
    for (const turn of this.#turns.splice(0)) await this.#commit(turn, 'hibernate', true);
    for (let quiet = 0, turns = 0; quiet < 2; turns += 1) {
      expect(turns, 'it never comes to rest').toBeLessThan(300);
      await this.#claim(turns, 3);
      await this.#claimAlone(turns);
      quiet = this.#turns.length === 0 ? quiet + 1 : 0;
      for (const turn of this.#turns.splice(0)) await this.#commit(turn, 'hibernate', true);
    }
    for (const [id, known] of this.#actors) await this.#check(id, known);
    expect(await this.#session.one('select count(*)::int from pawl.actor_inbox')).toBe(0);
  }

  async #check(id: number, known: KnownActor): Promise<void> {
    const shown = await this.#session.one<{ status: string; openChildren: number; semaphores: Record<string, number> }>(
      'select pawl.actor_show($1)',
      [id],
    );
    const what = `actor ${id}: ${JSON.stringify(known)}`;
    if (known.isFinal) return expect(shown, what).toMatchObject({ status: 'final', semaphores: {} });
    expect(shown.openChildren, what).toBe(known.children);
    expect(shown.semaphores['go'] ?? 0, what).toBe(known.raised - known.taken);
    expect(['hibernating', 'napping', 'backing off'], what).toContain(shown.status);
    expect(known.hasNews || (known.isAlone && known.children === 0), `${what} was not woken`).toBe(false);
  }

  async #create(parent: number | undefined): Promise<void> {
    const isFinal = parent !== undefined && this.#known(parent).isFinal;
    const head = JSON.stringify([{ type: 'thing', parent }, {}]);
    const made = this.#session.one<{ id: string }>('select pawl.actor_create_json($1)', [head]);
    if (isFinal) {
      await expect(made).rejects.toThrow(/is final/);
      return;
    }
    this.#born(Number((await made).id), parent);
  }

  #born(id: number, parent: number | undefined): void {
    this.#actors.set(id, {
      raised: 0,
      taken: 0,
      open: new Map(),
      parent,
      children: 0,
      epoch: 0,
      isFinal: false,
      isPaused: false,
      hasNews: true,
      isAlone: false,
      lost: 0,
    });
    if (parent !== undefined) this.#known(parent).children += 1;
  }

  async #incr(id: number, n: number, producer: number | undefined): Promise<void> {
    const known = this.#known(id);
    const index = producer === undefined ? undefined : producer % PRODUCERS;
    const session = index === undefined ? this.#session : this.#producer(index);
    if (index !== undefined && this.#isOpen[index] !== true) {
      await session.begin();
      this.#isOpen[index] = true;
    }
    const counts = await session.one('select pawl.actor_incr($1)', [JSON.stringify({ actor: id, semaphore: 'go', n })]);
    expect(counts).toBe(!known.isFinal);
    if (known.isFinal) return;
    if (index === undefined) {
      known.raised += n;
      known.hasNews = true;
    } else known.open.set(index, (known.open.get(index) ?? 0) + n);
  }

  async #send(id: number): Promise<void> {
    const known = this.#known(id);
    const heard = await this.#session.one('select pawl.actor_send_json($1)', [
      JSON.stringify([{ actor: id, name: 'm' }, 1]),
    ]);
    expect(heard).toBe(!known.isFinal);
    known.hasNews ||= !known.isFinal;
  }

  async #end(producer: number, commits: boolean): Promise<void> {
    const index = producer % PRODUCERS;
    await this.#producer(index).client.query(commits ? 'commit' : 'rollback');
    this.#isOpen[index] = false;
    for (const known of this.#actors.values()) {
      const n = known.open.get(index) ?? 0;
      known.open.delete(index);
      if (n === 0 || !commits || known.isFinal) continue;
      known.raised += n;
      known.hasNews = true;
    }
  }

  async #claim(worker: number, limit: number): Promise<void> {
    const id = this.#workers[worker % WORKERS] ?? 0;
    const types = await this.#types();
    const answer = await this.#session.one<string>('select pawl.actor_claim($1, $2, $3)', [id, types, limit]);
    this.#claimed(id, answer, [0, 1]);
  }

  async #claimAlone(worker: number): Promise<void> {
    const id = this.#workers[worker % WORKERS] ?? 0;
    const types = await this.#types();
    this.#claimed(id, await this.#session.one<string>('select pawl.actor_claim_alone($1, $2, true)', [id, types]), [2]);
  }

  #claimed(id: number, answer: string, lost: readonly number[]): void {
    const { rows } = JSON.parse(answer) as {
      rows: [number, number, string, number, number, number, number, number, number, number, Record<string, number>][];
    };
    for (const [actor, , , , epoch, , , children, , , semaphores] of rows) {
      const known = this.#known(actor);
      const what = `a claim of actor ${actor}: ${JSON.stringify(known)}`;
      const go = semaphores['go'] ?? 0;
      expect(
        this.#turns.some((turn) => turn.actor === actor),
        `${what} that somebody has`,
      ).toBe(false);
      expect({ isFinal: known.isFinal, isPaused: known.isPaused || this.#isTypePaused }, what).toEqual({
        isFinal: false,
        isPaused: false,
      });
      expect(epoch, what).toBeGreaterThan(known.epoch);
      expect(lost, what).toContain(known.lost);
      expect({ go, children }, what).toEqual({ go: known.raised - known.taken, children: known.children });
      known.epoch = epoch;
      known.hasNews = false;
      known.isAlone = false;
      this.#turns.push({ actor, epoch, worker: id, go });
    }
  }

  async #commit(turn: Turn, how: How, takes: boolean): Promise<void> {
    const known = this.#known(turn.actor);
    const lowers = takes && turn.go > 0 && how !== 'failed' && how !== 'released' ? turn.go : 0;
    const isRefused = how === 'done' && known.children > 0;
    const { stale, refused } = await this.#write(turn, how, lowers > 0 ? JSON.stringify({ go: -lowers }) : null);
    expect({ stale, refused }).toEqual({ stale: [], refused: isRefused ? [turn.actor] : [] });
    if (how !== 'released') known.lost = 0;
    // It backs off for a second, which a nudge does not cut short at once.
    if (isRefused) return this.play({ do: 'let time pass' });
    known.taken += lowers;
    if (how === 'child') this.#born(await this.#bear(turn.actor), turn.actor);
    if (how !== 'done') return;
    known.isFinal = true;
    const parent = known.parent === undefined ? undefined : this.#known(known.parent);
    if (parent === undefined) return;
    parent.children -= 1;
    parent.isAlone ||= parent.children === 0 && !parent.isFinal;
  }

  /** The child of a turn, which has counted it already. */
  async #bear(parent: number): Promise<number> {
    const head = JSON.stringify([{ type: 'thing', parent, counted: true }, {}]);
    return Number((await this.#session.one<{ id: string }>('select pawl.actor_create_json($1)', [head])).id);
  }

  async #write(turn: Turn, how: How, delta: string | null): Promise<{ stale: number[]; refused: number[] }> {
    const kind = how === 'hibernate' || how === 'nap' || how === 'child' ? 'stay' : how;
    const wait = how === 'nap' ? 3_600_000 : how === 'to' || how === 'released' || how === 'failed' ? 0 : null;
    const answer = await this.#session.one<string>(
      'select pawl.actor_commit($1, $2, $3, $4, $5, $6, $7, null, null, null, $8, null, null, null, $9)',
      [
        turn.worker,
        [turn.actor],
        [turn.epoch],
        [kind],
        [wait],
        ['only'],
        [how === 'to' ? 'only' : null],
        [delta],
        [how === 'child' ? 1 : null],
      ],
    );
    const { stale, refused } = JSON.parse(answer) as { stale: number[]; refused: number[] };
    return { stale, refused };
  }

  /** Its lease is over: its turns are anybody's, and it comes too late with whatever it brings. */
  async #crash(worker: number): Promise<void> {
    const index = worker % WORKERS;
    const id = this.#workers[index] ?? 0;
    await this.#session.client.query(
      `update pawl.actor_worker set expires_at = clock_timestamp() - interval '1 s' where id = ${id}`,
    );
    const lost = this.#turns.filter((turn) => turn.worker === id);
    expect(await this.#session.one('select pawl.actor_rescue()')).toBe(lost.length);
    const suspects = lost.filter(({ actor }) => this.#known(actor).lost > 0);
    for (const { actor } of suspects.length > 0 ? suspects : lost) this.#known(actor).lost += 1;
    const losses = Object.fromEntries([...this.#actors].map(([actor, known]) => [actor, known.lost]));
    expect(await this.#session.one('select json_object_agg(a.id, a.lost) from pawl.actor_instance a')).toEqual(losses);
    this.#forget(lost);
    // What the claim wrote as the next try is a millisecond away.
    await this.#session.client.query('select pg_sleep(0.002)');
    this.#workers[index] = await this.#addWorker();
  }

  /** A claim was not answered: the worker gives back what it does not know. */
  async #lose(worker: number): Promise<void> {
    const before = new Set(this.#turns);
    await this.#claim(worker, 2);
    const lost = this.#turns.filter((turn) => !before.has(turn));
    const id = this.#workers[worker % WORKERS] ?? 0;
    const kept = this.#turns.filter((turn) => turn.worker === id && before.has(turn)).map(({ actor }) => actor);
    expect(await this.#session.one('select pawl.actor_give_back_except($1, $2)', [id, kept])).toBe(lost.length);
    this.#forget(lost);
  }

  #forget(lost: readonly Turn[]): void {
    this.#turns = this.#turns.filter((turn) => !lost.includes(turn));
    this.#late.push(...lost);
    // Whatever they had seen has to be seen again.
    for (const { actor } of lost) this.#known(actor).hasNews = true;
  }

  async #pause(id: number | undefined, resume: boolean): Promise<void> {
    await this.#session.one('select pawl.actor_pause($1)', [
      JSON.stringify(id === undefined ? { type: 'thing', resume } : { actor: id, resume }),
    ]);
    if (id === undefined) this.#isTypePaused = !resume;
    else {
      const known = this.#known(id);
      // An operator that resumes what was lost so often has looked after it.
      const runs = this.#turns.some(({ actor }) => actor === id);
      if (resume && !known.isPaused && !runs && known.lost >= 2) {
        known.lost = 0;
        known.hasNews = true;
      }
      known.isPaused = !resume;
    }
  }

  async #addWorker(): Promise<number> {
    return Number(
      await this.#session.one(
        `insert into pawl.actor_worker (pid, concurrency, lease, expires_at, wants_notify, host, types, knows)
         values (1, 1, '1 h', clock_timestamp() + interval '1 h', false, 'test', '{}', '{}') returning id::text`,
      ),
    );
  }

  #types(): Promise<number[]> {
    return this.#session.one<number[]>('select array(select id::int from pawl.actor_type)');
  }

  #pick(number: number): number {
    const ids = [...this.#actors.keys()];
    return ids[number % ids.length] ?? 0;
  }

  #known(id: number): KnownActor {
    const known = this.#actors.get(id);
    if (known === undefined) throw new Error(`the account has no actor ${id}`);
    return known;
  }

  #producer(index: number): SqlSession {
    const producer = this.#producers[index];
    if (producer === undefined) throw new Error(`there is no producer ${index}`);
    return producer;
  }
}
