import { type DeadlockStep, NotSupported, PawlError } from '../../base/errors.ts';
import { currentTask } from '../../base/work/current-task.ts';
import { type PostgresEngine, type Statement } from '../../engine/postgres/index.ts';
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
  Holder,
  LockStore,
  NoticeHandlers,
  NoticeStream,
  PastHolder,
  ReleaseResult,
  RenewResult,
  RequestKey,
  Snapshot,
  Waiter,
  WakeUp,
} from '../store.ts';
import { callWithin } from './session-call.ts';
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
  /** True when the default isolation of the server is not read committed: each call then sets the isolation. */
  #isExplicit = false;

  constructor(engine: PostgresEngine, self: ProcessIdentity) {
    this.#engine = engine;
    this.#self = self;
    currentTask.isTracked = true;
  }

  /**
   * A lock without a lease is first granted with one, which a second statement removes. If the first one is carried out after
   * its caller has given up, the grant ends by itself.
   */
  async acquire(call: AcquireCall, options: CallOptions): Promise<AcquireAnswer> {
    if (call.leaseMs !== Infinity) return this.#take(call, Math.round(call.leaseMs), options);
    let isRetry = call.isRetry;
    for (;;) {
      const answer = await this.#take({ ...call, isRetry }, UNKEPT_MS, options);
      if (answer.kind !== 'granted') return answer;
      const { space, names } = call;
      const [row] = await this.#decide<{ kept: boolean }>(sql.KEEP, [space, names, String(answer.token)], options);
      if (row?.kept === true) return answer;
      // The grant was broken or ran out in between.
      isRetry = true;
    }
  }

  async #take(call: AcquireCall, leaseMs: number, options: CallOptions): Promise<AcquireAnswer> {
    const { id, host, pid } = this.#self;
    const [name = ''] = call.names;
    const job = currentTask.jobOf(this.#engine) ?? null;
    if (isPlain(call)) {
      const values = [call.space, name, call.nonce, leaseMs, id, host, pid, call.waiterMs ?? null, job];
      return toAnswer(answerOf(await this.#decide(sql.TAKE, values, options)));
    }
    const claim = [call.space, call.names, call.nonce, call.capacity, leaseMs, id, host, pid];
    const place = [call.waiterMs ?? null, call.ticket?.toString() ?? null, call.isRetry];
    const holds = call.holds.map(({ token }) => String(token));
    const values = [...claim, ...place, holds, call.periodMs ?? null, job];
    return toAnswer(answerOf(await this.#decide(sql.ACQUIRE, values, options)));
  }

  async withdraw(
    key: RequestKey,
    options: CallOptions,
  ): Promise<{ holder: string | undefined; wakeUps: readonly WakeUp[] }> {
    const values = [key.space, key.names, key.nonce, this.#self.id];
    const { holder, called } = answerOf<WithdrawRow>(await this.#decide(sql.LEAVE, values, options));
    return { holder: holder ?? undefined, wakeUps: called?.map(toWakeUp) ?? [] };
  }

  async renewPlaces(
    places: readonly { readonly nonce: string; readonly waiterMs: number }[],
    options: CallOptions,
  ): Promise<ReadonlySet<string>> {
    const values = [places.map((place) => place.nonce), places.map((place) => place.waiterMs)];
    return new Set((await this.#call<{ nonce: string }>(sql.KEEP_PLACES, values, options)).map((row) => row.nonce));
  }

  async renew(grants: readonly GrantKey[], options: CallOptions): Promise<RenewResult> {
    const rows = grants.flatMap((each, index) => each.names.map((name) => ({ ...each, name, index })));
    const values = [rows.map((row) => row.space), rows.map((row) => row.name), rows.map((row) => String(row.token))];
    const kept = await this.#call<{ place: number }>(sql.BEAT, values, { ...options, isUrgent: true });
    const places = new Set(kept.map((row) => row.place));
    const lost = new Set(rows.filter((_, place) => !places.has(place + 1)).map((row) => row.index));
    return { renewed: new Set([...grants.keys()].filter((index) => !lost.has(index))), unknown: NOBODY };
  }

  async release(grant: GrantKey, finish: CountedRun | undefined, options: CallOptions): Promise<ReleaseResult> {
    const { space, names, token } = grant;
    const [name = ''] = names;
    if (finish === undefined && names.length === 1) {
      return toReleaseResult(
        answerOf(await this.#decide(sql.FREE, [space, name, String(token), this.#self.id], options)),
      );
    }
    const isCounted = finish === undefined ? null : finish.outcome === 'success';
    const periodMs = finish === undefined ? null : Math.ceil(finish.periodMs);
    const values = [space, names, String(token), this.#self.id, isCounted, periodMs];
    return toReleaseResult(answerOf(await this.#decide(sql.RELEASE, values, options)));
  }

  async howEnded(grant: GrantKey, options: CallOptions): Promise<PastHolder | undefined> {
    const values = [grant.space, grant.names, String(grant.token)];
    const [row] = await this.#call<PastRow>(sql.FATE, values, options);
    return row === undefined ? undefined : toPast(row);
  }

  async guard(tx: unknown, { space, names, token }: GrantKey): Promise<void> {
    await this.#engine.callIn(tx, sql.GUARD, JSON.stringify({ space, names, token: String(token) }));
  }

  checks(): never {
    throw new NotSupported('on Postgres guard() takes the transaction that it is to hold in: await lock.guard(tx)');
  }

  async break(space: string, name: string, reason: string): Promise<readonly BrokenHolder[]> {
    const rows = await this.#decide<{ token: string; host: string; pid: number; since: Date }>(
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
    await this.#engine.query(sql.SWEEP, [keepMs]);
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

  /** Runs a function that decides: one round trip, even if the default isolation is not read committed. */
  async #decide<Row>(decision: Statement, values: Value[], options: CallOptions): Promise<Row[]> {
    if (!this.#isExplicit) {
      try {
        return await this.#call<Row>(decision, values, options);
      } catch (error) {
        if (!isWrongIsolation(error)) throw error;
        this.#isExplicit = true;
      }
    }
    // One text of three statements: the client cannot stop between them and leave the latch locked.
    const body = decision.text.replaceAll(/\$(\d+)/g, (_, place: string) => literal(values[Number(place) - 1]));
    const text = `begin isolation level read committed;\n${body};\ncommit`;
    const [, answer] = await callWithin(this.#engine, decision.name, options, (session) => session.run<Row>(text));
    return answer?.rows ?? [];
  }

  #call<Row>(sent: Statement, values: unknown[], options: CallOptions): Promise<Row[]> {
    return callWithin(this.#engine, sent.name, options, (session) => session.query<Row>(sent, values));
  }
}

/** Errors by a concurrent transaction, an operator, or a tiny lock_timeout: nothing was written. */
const PASSING = new Set(['lock_not_available', 'statement_timeout']);

function isWrongIsolation(error: unknown): boolean {
  return error instanceof PawlError && 'sqlState' in error && error.sqlState === 'PW005';
}

/** A value for the text of a statement; it means the same under every setting of standard_conforming_strings. */
type Value = string | number | boolean | null | readonly string[];

function literal(value: Value | undefined): string {
  if (value === null || value === undefined) return 'null';
  if (typeof value === 'object') return `array[${value.map(literal).join(', ')}]`;
  return `E'${String(value).replaceAll('\\', '\\\\').replaceAll("'", "''")}'`;
}

interface AnswerRow {
  answer: string;
}

/** One JSON object, with the columns of the function that decided as its fields. */
function answerOf<Answer>([row]: readonly AnswerRow[]): Answer {
  return JSON.parse(row?.answer ?? '{}') as Answer;
}

/** Columns that are null may be missing. */
interface AcquireRow {
  token?: string | null;
  ticket?: string | null;
  ahead?: number | null;
  retry_ms?: number | null;
  place_ms?: number | null;
  is_new?: boolean | null;
  cycle?: CycleStep[] | null;
  holder?: string | null;
}

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

function toAnswer(row: AcquireRow): AcquireAnswer {
  if (row.token) return { kind: 'granted', token: BigInt(row.token) };
  const { ticket, ahead, retry_ms, place_ms, is_new, cycle, holder } = row;
  if (cycle) return { kind: 'cycle', cycle: toCycle(cycle) };
  const retryMs = retry_ms ?? undefined;
  if (ticket) {
    const place = { ticket: BigInt(ticket), placeMs: place_ms ?? 0, isNew: is_new !== false };
    return { kind: 'waiting', ...place, ahead: ahead ?? 0, retryMs };
  }
  return retryMs === undefined ? { kind: 'held', holder: holder ?? undefined } : { kind: 'done', retryMs };
}

interface ReleaseRow {
  released?: boolean;
  /** Waiters of this process that were granted what was released, or whose turn it is: `nonce token`, or `nonce`, each. */
  called?: string[] | null;
}

interface WithdrawRow {
  holder?: string | null;
  called?: string[] | null;
}

function toReleaseResult({ released, called }: ReleaseRow): ReleaseResult {
  return { isReleased: released === true, wakeUps: called?.map(toWakeUp) ?? [] };
}

/** The same words as in a notification. */
function toWakeUp(words: string): WakeUp {
  const [nonce = '', token] = words.split(' ');
  return { nonce, token: token === undefined ? undefined : BigInt(token) };
}

interface CycleStep {
  name: string;
  token: string | null;
  host: string;
  pid: number;
}

function toCycle(steps: readonly CycleStep[]): DeadlockStep[] {
  return steps.map(({ name, token, host, pid }) => ({
    name,
    token: token === null ? undefined : BigInt(token),
    host,
    pid,
  }));
}

interface SnapshotRow {
  name: string;
  state: 'held' | 'waiting';
  mode: Holder['mode'];
  permits: number | null;
  token: string | null;
  ticket: string | null;
  host: string;
  pid: number;
  job: string | null;
  since: Date;
  expires_at: Date | null;
  heartbeat_at: Date | null;
  left_ms: number | null;
  age_ms: number;
}

function toHolder(row: SnapshotRow): Holder {
  return {
    name: row.name,
    mode: row.mode,
    permits: row.permits ?? null,
    token: BigInt(row.token ?? 0),
    host: row.host,
    pid: row.pid,
    job: row.job ?? null,
    since: row.since,
    expiresAt: row.expires_at,
    leaseLeftMs: row.left_ms,
    lastHeartbeatAt: row.heartbeat_at,
  };
}

function toWaiter(row: SnapshotRow): Waiter {
  return {
    name: row.name,
    mode: row.mode,
    permits: row.permits ?? null,
    ticket: BigInt(row.ticket ?? 0),
    host: row.host,
    pid: row.pid,
    job: row.job ?? null,
    since: row.since,
    waitedMs: row.age_ms,
  };
}

interface PastRow {
  name: string;
  mode: Holder['mode'];
  permits?: number | null;
  token: string;
  host: string;
  pid: number;
  job?: string | null;
  granted_at: Date;
  ended_at: Date;
  outcome: PastHolder['outcome'];
  reason: string | null;
}

function toPast(row: PastRow): PastHolder {
  return {
    name: row.name,
    mode: row.mode,
    permits: row.permits ?? null,
    token: BigInt(row.token),
    host: row.host,
    pid: row.pid,
    job: row.job ?? null,
    grantedAt: row.granted_at,
    endedAt: row.ended_at,
    outcome: row.outcome,
    reason: row.reason,
  };
}

interface EdgeRow {
  wants: string;
  host: string;
  pid: number;
  keeps: string[];
}

interface BackendRow {
  pid: number;
  application_name: string;
  query: string;
  blockers: number[];
}

function graphOf(edges: string[][]): Map<string, string[]> {
  const graph = new Map<string, string[]>();
  for (const [from = '', to = ''] of edges) graph.set(from, [...(graph.get(from) ?? []), to]);
  return graph;
}

/** What the holders of a name wait for, the holders of that, and so on: why the name is not released. */
function blockingFrom(name: string, edges: readonly EdgeRow[]): string[] {
  const lines: string[] = [];
  const seen = new Set<string>();
  const queue = [name];
  for (let each = queue.shift(); each !== undefined; each = queue.shift()) {
    if (seen.has(each)) continue;
    seen.add(each);
    for (const { wants, host, pid, keeps } of edges) {
      if (!keeps.includes(each)) continue;
      lines.push(`"${each}" is held by ${host} (pid ${pid}), which waits for "${wants}"`);
      queue.push(wants);
    }
  }
  return lines;
}
