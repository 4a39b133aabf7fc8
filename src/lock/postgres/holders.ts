import type { Holder, PastHolder, Waiter } from '../store.ts';

export interface SnapshotRow {
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

export function toHolder(row: SnapshotRow): Holder {
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

export function toWaiter(row: SnapshotRow): Waiter {
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

export interface PastRow {
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

export function toPast(row: PastRow): PastHolder {
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
