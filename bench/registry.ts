import { actor } from './actor.ts';
import { actorDynamodb } from './actor-dynamodb.ts';
import { beforeAfter } from './before-after.ts';
import { capture } from './capture.ts';
import { coalesce } from './coalesce.ts';
import { debounce } from './debounce.ts';
import { files } from './files.ts';
import { flow } from './flow.ts';
import { groups } from './groups.ts';
import type { Bench } from './harness/context.ts';
import { herd } from './herd.ts';
import { http } from './http.ts';
import { lock } from './lock.ts';
import { lockDynamodb } from './lock-dynamodb.ts';
import { queue } from './queue.ts';
import { queueDepth } from './queue-depth.ts';
import { queueDynamodb } from './queue-dynamodb.ts';
import { queueKeys } from './queue-keys.ts';
import { queueWal } from './queue-wal.ts';
import { retry } from './retry.ts';
import { unique } from './unique.ts';

/** Every bench by its name on the command line. */
export const benches: Readonly<Record<string, Bench>> = {
  actor,
  'actor-dynamodb': actorDynamodb,
  capture,
  queue,
  'queue-keys': queueKeys,
  'queue-depth': queueDepth,
  'queue-wal': queueWal,
  'queue-dynamodb': queueDynamodb,
  coalesce,
  retry,
  flow,
  unique,
  debounce,
  groups,
  herd,
  files,
  lock,
  'lock-dynamodb': lockDynamodb,
  http,
  'before-after': beforeAfter,
};

/** The benches that need no Postgres. */
export const withoutPostgres: ReadonlySet<string> = new Set(['actor-dynamodb', 'lock-dynamodb', 'queue-dynamodb']);
