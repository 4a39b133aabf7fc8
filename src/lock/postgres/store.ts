import { NotSupported, PawlError } from '../../base/errors.ts';
import { currentTask } from '../../base/work/current-task.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { cyclesOf } from '../graph.ts';
import type { ProcessIdentity } from '../identity.ts';
import type {
  AcquireAnswer,
  AcquireCall,
  BrokenHolder,
  CallOptions,
  CountedRun,
  Explanation,
  GrantKey,
  LockStore,
  NoticeHandlers,
  NoticeStream,
  PastHolder,
  ReleaseResult,
  RenewResult,
  RequestKey,
  Snapshot,
  WakeUp,
} from '../store.ts';
import { answerOf, toAnswer, toReleaseResult, toWakeUp, type WithdrawRow } from './answers.ts';
import { type BackendRow, blockingFrom, type EdgeRow, graphOf } from './blockers.ts';
import { Calls } from './calls.ts';
import { type PastRow, type SnapshotRow, toHolder, toPast, toWaiter } from './holders.ts';
import * as sql from './statements.ts';

const OPERATOR: CallOptions = { timeoutMs: 30_000 };
/** The first lease of a lock without a lease, until the second statement removes it: longer than a call may take. */
const UNKEPT_MS = 30_000;
const NOBODY: ReadonlyMap<number, unknown> = new Map();

/** Locks on Postgres: every decision is one call of a function in sql/lock. */
export class PostgresLockStore implements LockStore {
  readonly mostPermits: number = Infinity;
  readonly #engine: PostgresEngine;
  readonly #self: ProcessIdentity;
  readonly #calls: Calls;

  constructor(engine: PostgresEngine, self: ProcessIdentity) {
    this.#engine = engine;
    this.#self = self;
    this.#calls = new Calls(engine);
    currentTask.isTracked = true;
  }

  /**
   * A lock without a lease is first granted with one, which a second statement removes. If the first one is carried out after
   * its caller has given up, the grant ends by itself.
   */
  async acquire(call: AcquireCall, options: CallOptions): Promise<AcquireAnswer> {
    if (call.leaseMs !== Infinity) return this.#take(call, Math.round(call.leaseMs), options);
    const { space, names } = call;
    for (let asked = call; ; asked = { ...call, isRetry: true, waiterMs: undefined }) {
      const answer = await this.#take(asked, UNKEPT_MS, options);
      if (answer.kind !== 'granted') return answer;
      const [row] = await this.#calls.decide<{ kept: boolean }>(
        sql.KEEP,
        [space, names, String(answer.token)],
        options,
      );
      if (row?.kept === true) return { kind: 'granted', token: answer.token };
      // The grant was broken or ran out in between. The next call asks for the longer first lease, and for no place.
    }
  }

  async #take(call: AcquireCall, leaseMs: number, options: CallOptions): Promise<AcquireAnswer> {
    const { id, host, pid } = this.#self;
    const [name = ''] = call.names;
    const job = currentTask.jobOf(this.#engine) ?? null;
    if (isPlain(call)) {
      const values = [call.space, name, call.nonce, leaseMs, id, host, pid, call.waiterMs ?? null, job];
      return toAnswer(answerOf(await this.#calls.decide(sql.TAKE, values, options)));
    }
    const claim = [call.space, call.names, call.nonce, call.capacity, leaseMs, id, host, pid];
    const place = [call.waiterMs ?? null, call.ticket?.toString() ?? null, call.isRetry];
    const holds = call.holds.map(({ token }) => String(token));
    const values = [...claim, ...place, holds, call.periodMs ?? null, job];
    return toAnswer(answerOf(await this.#calls.decide(sql.ACQUIRE, values, options)));
  }

  async withdraw(
    key: RequestKey,
    options: CallOptions,
  ): Promise<{ holder: string | undefined; wakeUps: readonly WakeUp[] }> {
    const values = [key.space, key.names, key.nonce, this.#self.id];
    const { holder, called } = answerOf<WithdrawRow>(await this.#calls.decide(sql.LEAVE, values, options));
    return { holder: holder ?? undefined, wakeUps: called?.map(toWakeUp) ?? [] };
  }

  async renewPlaces(
    places: readonly { readonly nonce: string; readonly waiterMs: number }[],
    options: CallOptions,
  ): Promise<ReadonlySet<string>> {
    const values = [places.map((place) => place.nonce), places.map((place) => place.waiterMs)];
    return new Set(
      (await this.#calls.call<{ nonce: string }>(sql.KEEP_PLACES, values, options)).map((row) => row.nonce),
    );
  }

  async renew(grants: readonly GrantKey[], options: CallOptions): Promise<RenewResult> {
    const rows = grants.flatMap((each, index) => each.names.map((name) => ({ ...each, name, index })));
    const values = [rows.map((row) => row.space), rows.map((row) => row.name), rows.map((row) => String(row.token))];
    const kept = await this.#calls.call<{ place: number }>(sql.BEAT, values, { ...options, isUrgent: true });
    const places = new Set(kept.map((row) => row.place));
    const lost = new Set(rows.filter((_, place) => !places.has(place + 1)).map((row) => row.index));
    return { renewed: new Set([...grants.keys()].filter((index) => !lost.has(index))), unknown: NOBODY };
  }

  async release(grant: GrantKey, finish: CountedRun | undefined, options: CallOptions): Promise<ReleaseResult> {
    const { space, names, token } = grant;
    const [name = ''] = names;
    if (finish === undefined && names.length === 1) {
      return toReleaseResult(
        answerOf(await this.#calls.decide(sql.FREE, [space, name, String(token), this.#self.id], options)),
      );
    }
    const isCounted = finish === undefined ? null : finish.outcome === 'success';
    const periodMs = finish === undefined ? null : Math.ceil(finish.periodMs);
    const values = [space, names, String(token), this.#self.id, isCounted, periodMs];
    return toReleaseResult(answerOf(await this.#calls.decide(sql.RELEASE, values, options)));
  }

  async howEnded(grant: GrantKey, options: CallOptions): Promise<PastHolder | undefined> {
    const values = [grant.space, grant.names, String(grant.token)];
    const [row] = await this.#calls.call<PastRow>(sql.FATE, values, options);
    return row === undefined ? undefined : toPast(row);
  }

  async guard(tx: unknown, { space, names, token }: GrantKey): Promise<void> {
    await this.#engine.callIn(tx, sql.GUARD, JSON.stringify({ space, names, token: String(token) }));
  }

  checks(): never {
    throw new NotSupported('on Postgres guard() takes the transaction that it must protect: await lock.guard(tx)');
  }

  async break(space: string, name: string, reason: string): Promise<readonly BrokenHolder[]> {
    const rows = await this.#calls.decide<{ token: string; host: string; pid: number; since: Date }>(
      sql.BREAK,
      [space, name, reason],
      OPERATOR,
    );
    return rows.map(({ token, host, pid, since }) => ({
      token: BigInt(token),
      host,
      pid,
      since,
    }));
  }

  async snapshot(space: string): Promise<Snapshot> {
    return this.#snapshot(space, undefined);
  }

  async explain(space: string, name: string): Promise<Explanation> {
    const { held, waiting } = await this.#snapshot(space, name);
    const edges = await this.#engine.query<EdgeRow>(sql.EDGES, [space]);
    const backends = await this.#engine.query<BackendRow>(sql.BACKENDS);
    const guards = await this.#engine.query<{ pid: number }>(sql.GUARDS, [space, name]);
    const names = graphOf(edges.flatMap((edge) => edge.keeps.map((keeps) => [keeps, edge.wants])));
    const pids = graphOf(backends.flatMap((each) => each.blockers.map((pid) => [String(each.pid), String(pid)])));
    return {
      name,
      holders: held,
      waiters: waiting,
      guardedBy: guards.map((row) => row.pid),
      blocking: blockingFrom(name, edges),
      backends: backends.map(({ pid, application_name, query, blockers }) => ({
        pid,
        applicationName: application_name,
        query,
        blockedBy: blockers,
      })),
      cycles: [...cyclesOf(names), ...cyclesOf(pids)],
    };
  }

  async history(space: string, name: string | undefined, limit: number): Promise<readonly PastHolder[]> {
    const rows = await this.#engine.query<PastRow>(sql.HISTORY, [space, name ?? null, limit]);
    return rows.map(toPast);
  }

  async sweep(keepMs: number): Promise<void> {
    await this.#calls.decide(sql.SWEEP, [keepMs], OPERATOR);
  }

  async notices(to: NoticeHandlers): Promise<NoticeStream> {
    const hear = (payload: string): void => {
      const [word, subject = ''] = payload.split(' ');
      if (word === 'lost') to.onLost(subject);
      else if (word === 'turn') to.onWakeUp(toWakeUp(payload.slice(5)));
    };
    const subscription = await this.#engine.listen(`pawl_lock_${this.#self.id}`, hear, {
      onReconnect: () => to.onGap(),
    });
    void subscription.tested.then(() => to.onGap());
    return {
      get isReliable() {
        return subscription.reliable === true;
      },
      stop: () => subscription.stop(),
    };
  }

  get isListening(): boolean {
    return this.#engine.isListening;
  }

  isTransient(error: unknown): boolean {
    return this.#engine.isTransient(error) || (error instanceof PawlError && PASSING.has(error.code));
  }

  async #snapshot(space: string, name: string | undefined): Promise<Snapshot> {
    const rows = await this.#engine.query<SnapshotRow>(sql.SNAPSHOT, [space, name ?? null]);
    return {
      held: rows.filter((row) => row.state === 'held').map(toHolder),
      waiting: rows.filter((row) => row.state === 'waiting').map(toWaiter),
    };
  }
}

/** Errors by a concurrent transaction, an operator, or a tiny lock_timeout: nothing was written. */
const PASSING = new Set(['lock_not_available', 'statement_timeout']);

/** Whether this is a first request for one exclusive name and nothing else: the statement for that is shorter. */
function isPlain({ names, capacity, isRetry, ticket, holds, periodMs }: AcquireCall): boolean {
  return (
    names.length === 1 &&
    capacity === 1 &&
    !isRetry &&
    ticket === undefined &&
    holds.length === 0 &&
    periodMs === undefined
  );
}
