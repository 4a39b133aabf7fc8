import type { Fields } from '../../../engine/dynamodb/index.ts';
import type { ActorFilter } from '../../postgres/reader.ts';
import type { ActorStatus, ActorSummary } from '../../record.ts';
import type { SeenActor } from '../database.ts';
import { type ActorHead, F, type InboxRow } from '../heads/head.ts';
import { STATE_PAUSED } from '../heads/wake.ts';
import type { TypeRow } from '../types.ts';

export function isWanted({ type, state, status, parent, id }: ActorSummary, filter: ActorFilter): boolean {
  if (!filter.final && status === 'final') return false;
  if (filter.parent !== undefined && parent !== String(filter.parent)) return false;
  return (
    (filter.type ?? type) === type &&
    (filter.state ?? state) === state &&
    (filter.status ?? status) === status &&
    Number(id) < filter.before
  );
}

export function summaryOf(actor: number, type: TypeRow, { head, inbox }: SeenActor, now: number): ActorSummary {
  const fields = head?.fields ?? {};
  return {
    id: String(actor),
    type: type.name,
    state: head?.state ?? '',
    status: head === undefined ? 'final' : statusOf(head, inbox, type, now),
    key: fields[F.key] === undefined ? null : String(fields[F.key]),
    parent: fields[F.parent] === undefined ? null : String(fields[F.parent]),
    attempt: head?.attempt ?? 0,
    error: fields[F.error] === undefined ? null : String(fields[F.error]),
    enteredAt: new Date(Number(fields[F.enteredAt] ?? 0)),
    wakeAt: date(fields[F.wakeAt]),
    createdAt: new Date(Number(fields[F.createdAt] ?? 0)),
  };
}

function statusOf(head: ActorHead, inbox: readonly InboxRow[], type: TypeRow, now: number): ActorStatus {
  if (head.isFinal) return 'final';
  if (head.worker !== 0) return 'running';
  if (head.isPaused || type.pausedAt > 0 || head.held === STATE_PAUSED) return 'paused';
  if (head.held !== undefined) return 'held';
  const isRaised = inbox.some(({ name, semaphore }) => semaphore !== undefined && !head.absorbed.includes(name));
  if (isRaised && head.floorAt <= now) return 'due';
  if (head.wakeAt === undefined) return 'hibernating';
  if (head.wakeAt <= now) return 'due';
  return head.attempt > 0 ? 'backing off' : 'napping';
}

export function timersOf(fields: Fields): Record<string, Date> {
  const table: Record<string, readonly [number, number | null]> = JSON.parse(String(fields[F.timers] ?? '{}'));
  return Object.fromEntries(
    Object.entries(table).flatMap(([name, [, due]]) => (due === null ? [] : [[name, new Date(due)]])),
  );
}

export function date(value: string | number | undefined): Date | null {
  return value === undefined ? null : new Date(Number(value));
}

export function json(value: string | number | undefined): unknown {
  return value === undefined ? null : JSON.parse(String(value));
}
