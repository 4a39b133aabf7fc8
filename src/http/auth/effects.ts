import type { ActorAdmin } from '../../actor/index.ts';
import { isObject } from '../../base/options/shape.ts';
import type { Capture, CaptureAdmin, Projection } from '../../capture/index.ts';
import type { Files } from '../../files/index.ts';
import type { Locks, RemoteLocks } from '../../lock/index.ts';
import type { AnyQueueAdmin } from '../../queue/index.ts';
import type { BulkActions } from '../bulk/actions.ts';
import { needs } from '../redaction/redaction.ts';
import type { BulkRequest } from '../store/bulk.ts';
import type { JobStore } from '../store/jobs.ts';

import type { Permission, Principal } from './permission.ts';

/** All objects through which a route changes something. They check no permissions themselves. */
export interface Writers {
  readonly queues: AnyQueueAdmin;
  readonly actors: ActorAdmin;
  readonly captures: CaptureAdmin;
  readonly bulk: BulkActions;
  readonly jobs: JobStore;
  readonly locks: (namespace: string) => Locks;
  readonly remoteLocks: (namespace: string) => RemoteLocks;
  readonly files: (namespace: string) => Files;
  readonly declared: (entity: string) => Capture;
}

/** The permissions that a bulk action needs in addition to `job:bulk`. */
const OF_BULK = {
  retry: 'job:retry',
  cancel: 'job:cancel',
  finish: 'job:update',
  redrive: 'job:retry',
  move: 'job:move',
  erase: 'job:erase',
} as const satisfies Readonly<Record<BulkRequest['action'], Permission>>;

/**
 * A job whose own rule has `replace` may change a job that waits. What its kind declares is the will of the program, and needs no
 * more than any enqueue.
 * @param requests  JSON, without the payloads, or with an escape in each name
 */
function toAdd(requests: string): readonly Permission[] {
  // Most requests have no such word, and need not be parsed a second time.
  const replaces = /replace|\\u/.test(requests) && hasReplace(JSON.parse(requests));
  return replaces ? ['job:enqueue', 'job:update'] : ['job:enqueue'];
}

/** Whether it has `unique: { replace: true }` anywhere but in values of the caller. */
function hasReplace(request: unknown): boolean {
  if (Array.isArray(request)) return request.some(hasReplace);
  if (!isObject(request)) return false;
  const { unique, payload: _payload, meta: _meta, ...rest } = request;
  if (isObject(unique) && unique['replace'] === true) return true;
  return Object.values(rest).some(hasReplace);
}

/** The permissions of each effect, by its object. No route can use an effect that is missing here. */
const NEEDED = {
  queues: {
    retry: 'job:retry',
    cancel: 'job:cancel',
    finish: 'job:update',
    skip: 'job:retry',
    redrive: 'job:retry',
    erase: 'job:erase',
    remove: 'queue:remove',
    sealBatch: 'job:enqueue',
    pause: 'queue:pause',
    resume: 'queue:pause',
    releaseWorker: 'worker:release',
    claim: ['job:work', 'payload:read'],
    complete: 'job:work',
    fail: 'job:work',
    release: 'job:work',
    extend: 'job:work',
    runSchedule: 'job:enqueue',
    pauseSchedule: 'schedule:pause',
    resumeSchedule: 'schedule:pause',
    setSchedule: 'schedule:write',
    unschedule: 'schedule:write',
  },
  actors: {
    // Raising this semaphore destroys the actor.
    incr: (_actor: unknown, semaphore: unknown): Permission =>
      semaphore === 'destroy' ? 'actor:destroy' : 'actor:signal',
    send: 'actor:signal',
    ask: 'actor:signal',
    retry: 'actor:signal',
    move: 'actor:move',
    destroy: 'actor:destroy',
    pause: 'actor:pause',
    resume: 'actor:pause',
    ackPage: 'page:ack',
    resolvePage: 'page:resolve',
  },
  captures: { replay: 'capture:repair', detach: 'capture:detach' },
  bulk: {
    start: ({ action }: BulkRequest): Permission[] => ['job:bulk', OF_BULK[action]],
    startOn: (_jobs: unknown, { action }: Pick<BulkRequest, 'action'>): Permission[] => ['job:bulk', OF_BULK[action]],
    stop: 'job:bulk',
  },
  jobs: {
    enqueue: (_once: unknown, _raw: string, jobs: string): readonly Permission[] => toAdd(jobs),
    retry: 'job:retry',
    rerun: ['job:retry', 'job:enqueue'],
    update: 'job:update',
    flow: (_once: unknown, _raw: string, nodes: readonly object[]): readonly Permission[] =>
      toAdd(JSON.stringify(nodes)),
    newBatch: (_once: unknown, raw: string): readonly Permission[] => toAdd(raw),
    addToBatch: (_once: unknown, _batch: string, _raw: string, jobs: string): readonly Permission[] => toAdd(jobs),
    publish: (_once: unknown, _raw: string, request: object): readonly Permission[] => toAdd(JSON.stringify(request)),
  },
  locks: { break: 'lock:break' },
  remoteLocks: { acquire: 'lock:hold', renew: 'lock:hold', release: 'lock:hold' },
  files: {
    read: 'file:read',
    write: 'file:write',
    restore: 'file:write',
    remove: 'file:remove',
    sweep: 'file:sweep',
    reconcile: ({ dryRun }: { readonly dryRun?: boolean } = {}): Permission =>
      dryRun === true ? 'file:sweep' : 'file:repair',
    collector: 'file:repair',
    rearm: 'file:repair',
  },
  declared: { plan: 'view', apply: 'capture:install' },
  projection: { reconcile: 'capture:repair' },
} as const;

type PermissionTable = Readonly<
  Record<string, Permission | readonly Permission[] | ((...args: never[]) => Permission | readonly Permission[])>
>;

type FileEffects = Pick<Files, 'read' | 'write' | 'restore' | 'remove' | 'sweep' | 'reconcile' | 'collector' | 'rearm'>;

/** The effects that one caller can have. Each effect checks its own permission, so no route can bypass it. */
export class Effects {
  readonly queues: Pick<AnyQueueAdmin, keyof (typeof NEEDED)['queues']>;
  readonly actors: Pick<
    ActorAdmin,
    'incr' | 'send' | 'ask' | 'retry' | 'move' | 'destroy' | 'pause' | 'resume' | 'ackPage' | 'resolvePage'
  >;
  readonly captures: Pick<CaptureAdmin, 'replay' | 'detach'>;
  readonly bulk: Pick<BulkActions, 'start' | 'startOn' | 'stop'>;
  readonly jobs: Pick<JobStore, keyof (typeof NEEDED)['jobs']>;
  readonly #writers: Writers;
  readonly #who: Principal;

  constructor(writers: Writers, who: Principal) {
    this.#writers = writers;
    this.#who = who;
    this.queues = guarded(writers.queues, NEEDED.queues, who);
    this.actors = guarded(writers.actors, NEEDED.actors, who);
    this.captures = guarded(writers.captures, NEEDED.captures, who);
    this.bulk = guarded(writers.bulk, NEEDED.bulk, who);
    this.jobs = guarded(writers.jobs, NEEDED.jobs, who);
  }

  locks(namespace: string): Pick<Locks, 'break'> {
    return guarded(this.#writers.locks(namespace), NEEDED.locks, this.#who);
  }

  remoteLocks(namespace: string): Pick<RemoteLocks, 'acquire' | 'renew' | 'release'> {
    return guarded(this.#writers.remoteLocks(namespace), NEEDED.remoteLocks, this.#who);
  }

  /** @throws HttpRefusal  not_supported: this server does not have the store */
  files(namespace: string): FileEffects {
    return guarded(this.#writers.files(namespace), NEEDED.files, this.#who);
  }

  /** @throws HttpRefusal  not_supported: this server does not have the declaration */
  declared(entity: string): Pick<Capture, 'plan' | 'apply'> {
    return guarded(this.#writers.declared(entity), NEEDED.declared, this.#who);
  }

  projection(projection: Projection): Pick<Projection, 'reconcile'> {
    return guarded(projection, NEEDED.projection, this.#who);
  }
}

/** The same object, but each method checks its permission first, and methods without an entry refuse. */
function guarded<T extends object>(target: T, needed: PermissionTable, who: Principal): T {
  return new Proxy(target, {
    get: (of, name) => {
      const [rule, method]: [unknown, unknown] = [Reflect.get(needed, name), Reflect.get(of, name)];
      if (rule === undefined || typeof method !== 'function')
        throw new TypeError(`no permission is declared for ${String(name)}`);
      return (...args: unknown[]): unknown => {
        const wanted: unknown = typeof rule === 'function' ? rule(...args) : rule;
        for (const permission of [wanted].flat()) needs(who, permission as Permission);
        return Reflect.apply(method, of, args);
      };
    },
  });
}
