// The part of each peer that the sides call. It is declared here so that the type check needs no `npm ci` in bench/.
declare module 'graphile-worker' {
  import type { EventEmitter } from 'node:events';

  export interface WorkerPreset {
    worker: {
      connectionString: string;
      maxPoolSize?: number;
      concurrentJobs?: number;
      localQueue?: { size: number };
      completeJobBatchDelay?: number;
      failJobBatchDelay?: number;
      logger?: Logger;
      events?: EventEmitter;
    };
  }
  export interface JobSpec {
    identifier: string;
    payload: unknown;
    maxAttempts?: number;
  }
  export interface WorkerUtils {
    migrate(): Promise<void>;
    addJob(identifier: string, payload: unknown): Promise<unknown>;
    addJobs(jobs: readonly JobSpec[]): Promise<readonly unknown[]>;
    rescheduleJobs(ids: readonly string[], options: { runAt: Date }): Promise<unknown>;
    release(): Promise<void>;
  }
  export interface Runner {
    stop(): Promise<void>;
  }
  export class Logger {
    constructor(factory: () => (level: string, message: string) => void);
  }
  export function makeWorkerUtils(options: { preset: WorkerPreset }): Promise<WorkerUtils>;
  export function run(options: {
    preset: WorkerPreset;
    noHandleSignals?: boolean;
    taskList: Record<string, (payload: unknown) => Promise<void>>;
  }): Promise<Runner>;
}

declare module 'pg-boss' {
  export interface JobInsert {
    data: object;
    singletonKey?: string;
  }
  export interface Job {
    id: string;
    data: unknown;
  }
  export class PgBoss {
    constructor(options: {
      connectionString: string;
      max?: number;
      supervise?: boolean;
      schedule?: boolean;
      useListenNotify?: boolean;
    });
    on(event: 'error', listener: (error: Error) => void): this;
    start(): Promise<this>;
    stop(options: { graceful: boolean; close?: boolean }): Promise<void>;
    createQueue(
      name: string,
      options?: { policy?: string; notify?: boolean; retryLimit?: number; retryDelay?: number },
    ): Promise<void>;
    insert(name: string, jobs: JobInsert[]): Promise<string[] | null>;
    send(name: string, data: object): Promise<string | null>;
    flow(jobs: { ref: string; name: string; data: object; dependsOn: string[] }[]): Promise<Record<string, string>>;
    resolveFlow(): Promise<unknown>;
    fetch(name: string, options: { batchSize: number }): Promise<Job[]>;
    complete(name: string, ids: string[]): Promise<unknown>;
    fail(name: string, ids: string[], output: object): Promise<unknown>;
    work(name: string, options: { batchSize: number }, handler: (jobs: Job[]) => Promise<void>): Promise<string>;
  }
}

declare module 'dynamodb-lock-client' {
  export type Call = (params: object, done: (error: Error | null | undefined, data?: unknown) => void) => void;

  export class FailOpen {
    constructor(config: {
      dynamodb: { get: Call; put: Call; delete: Call };
      lockTable: string;
      partitionKey: string;
      leaseDurationMs: number;
      heartbeatPeriodMs: number;
      retryCount: number;
    });
    acquireLock(
      id: string,
      done: (
        error: Error | null | undefined,
        lock: {
          readonly fencingToken: number;
          release(done: (error: Error | null | undefined, nothing: void) => void): void;
        },
      ) => void,
    ): void;
  }
}

declare module '@aws-sdk/lib-dynamodb' {
  import type { DynamoDBClient } from '@aws-sdk/client-dynamodb';

  export class DynamoDBDocument {
    static from(client: DynamoDBClient): DynamoDBDocument;
    get(params: never): Promise<unknown>;
    put(params: never): Promise<unknown>;
    delete(params: never): Promise<unknown>;
  }
}
