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

/** What a holder and a waiter have in common. */
function claimOf(
  row: SnapshotRow,
): Pick<Holder & Waiter, 'name' | 'mode' | 'permits' | 'host' | 'pid' | 'job' | 'since'> {
  const { name, mode, permits, host, pid, job, since } = row;
  return { name, mode, permits: permits ?? null, host, pid, job: job ?? null, since };
}

export function toHolder(row: SnapshotRow): Holder {
  return {
    ...claimOf(row),
    token: BigInt(row.token ?? 0),
    expiresAt: row.expires_at,
    leaseLeftMs: row.left_ms,
    lastHeartbeatAt: row.heartbeat_at,
  };
}

export function toWaiter(row: SnapshotRow): Waiter {
  return {
    ...claimOf(row),
    ticket: BigInt(row.ticket ?? 0),
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
