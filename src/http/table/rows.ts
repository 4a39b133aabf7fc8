/** Rows of this surface in a table of DynamoDB: actions of people, and sessions that were ended. */
import { randomBytes } from 'node:crypto';
import { type DynamoEngine, Expression, type Item, num, TTL, text } from '../../engine/dynamodb/index.ts';
import { type AuditEntry, AuditStore } from '../store/audit.ts';
import { SessionStore } from '../store/sessions.ts';
import type { AbsentDatabase } from './absent-database.ts';

const LIMITS = { timeoutMs: 10_000 };
const AUDIT = 'http:audit';
const SESSIONS = 'http:sessions';
/** The newest come first: their keys count down the time until a date in the future. */
const END_OF_TIME = 10 ** 15;
const DIGITS = 15;
/** The most rows that are read for one page, whatever the filter. */
const MOST = 1000;

type AuditRow = Awaited<ReturnType<AuditStore['list']>>[number];

/** The audit as rows of one partition; time to live removes them. An action costs two write units. */
export class TableAudit extends AuditStore {
  readonly #engine: DynamoEngine;
  readonly #keepMs: number;

  constructor(engine: DynamoEngine, absent: AbsentDatabase, keepMs: number) {
    super(absent, absent);
    this.#engine = engine;
    this.#keepMs = keepMs;
  }

  override async list(
    before: string,
    who: string | undefined,
    action: string | undefined,
    limit: number,
  ): Promise<AuditRow[]> {
    const from = /^[1-9]\d{0,14}$/.test(before) ? keyOf(Number(before) - 1) : '0';
    const items = await this.#engine.range(AUDIT, from, '~', MOST, LIMITS);
    return items
      .map(readRow)
      .filter((row) => (who === undefined || row['who'] === who) && (action === undefined || row['action'] === action))
      .slice(0, limit);
  }

  /** Ids are times in microseconds. If two are equal, one of them is drawn again. */
  override async begin({ who, remote, userAgent, action, target, details }: AuditEntry): Promise<string> {
    const now = this.#engine.now();
    const id = Math.floor(now) * 100 + ((randomBytes(1)[0] ?? 0) % 100);
    const request = new Expression().whenAbsent('pk').set('t', num(Math.floor(now)));
    request.set(TTL, num(Math.ceil((now + this.#keepMs) / 1000)));
    const fields = { w: who, r: remote, u: userAgent, a: action, g: target, d: details };
    for (const [name, value] of Object.entries(fields))
      if (value !== undefined && value !== null) request.set(name, text(value));
    const key = { pk: AUDIT, sk: keyOf(id) };
    const { isDone, isRepeated } = await this.#engine.update(key, request.write(), 'NONE', LIMITS);
    if (isDone || isRepeated) return String(id);
    return this.begin({ who, remote, userAgent, action, target, details });
  }

  override async end(id: string, status: number, error: string | undefined): Promise<void> {
    const request = new Expression().set('e', num(Math.floor(this.#engine.now()))).set('s', num(status));
    if (error !== undefined) request.set('f', text(error));
    await this.#engine.update({ pk: AUDIT, sk: keyOf(Number(id)) }, request.write(), 'NONE', LIMITS);
  }

  /** Time to live removes them. */
  override prune(): Promise<void> {
    return Promise.resolve();
  }
}

function keyOf(id: number): string {
  return String(END_OF_TIME - id).padStart(DIGITS, '0');
}

function readRow(item: Item): AuditRow {
  const of = (name: string): string | null => {
    const value = item[name];
    if (value === undefined) return null;
    return 'S' in value ? value.S : 'N' in value ? value.N : null;
  };
  const at = (name: string): string | null => (of(name) === null ? null : new Date(Number(of(name))).toISOString());
  const status = of('s') === null ? null : Number(of('s'));
  return {
    id: String(END_OF_TIME - Number(of('sk'))),
    at: at('t'),
    endedAt: at('e'),
    who: of('w'),
    remote: of('r'),
    userAgent: of('u'),
    action: of('a'),
    target: of('g'),
    details: JSON.parse(of('d') ?? 'null'),
    status,
    outcome: status === null ? 'unknown' : status < 400 ? 'done' : 'refused',
    error: of('f'),
  };
}

/** Sessions that were ended before their time, kept as long as their cookies would be valid. */
export class TableSessions extends SessionStore {
  readonly #engine: DynamoEngine;

  constructor(engine: DynamoEngine, absent: AbsentDatabase) {
    super(absent, absent);
    this.#engine = engine;
  }

  override async ended(): Promise<string[]> {
    const items = await this.#engine.range(SESSIONS, '!', '~', MOST, LIMITS);
    return items.flatMap(({ sk }) => (sk !== undefined && 'S' in sk ? [sk.S] : []));
  }

  override async end(id: string, until: Date): Promise<void> {
    const request = new Expression().set(TTL, num(Math.ceil(until.getTime() / 1000)));
    await this.#engine.update({ pk: SESSIONS, sk: id }, request.write(), 'NONE', LIMITS);
  }
}
