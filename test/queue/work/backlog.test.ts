import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { InvalidInput } from '../../../src/base/errors.ts';
import { Events } from '../../../src/base/events.ts';
import { probe } from '../../../src/base/probe.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { type Backlog, createQueue, type Queue, type Worker } from '../../../src/queue/index.ts';
import { watchBacklog } from '../../../src/queue/work/backlog.ts';
import type { WorkerEvents } from '../../../src/queue/work/report.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { type RecordedLog, recordLog } from '../../support/log.ts';

const kinds = { job: {} } as const;
let url: string;
let nth = 0;

beforeAll(async () => {
  ({ url } = await freshDatabase());
});

interface Stats {
  readonly ready: number;
  readonly oldestReadyMs: number | null;
}

interface Scene {
  readonly queue: Queue<typeof kinds>;
  readonly log: RecordedLog;
}

function open(): Scene {
  nth += 1;
  const log = recordLog();
  const engine = postgres(url, { logger: log });
  onTestFinished(() => engine.stop());
  return { log, queue: createQueue(engine, `backlog ${nth}`, { kinds }) };
}

/** What the worker says of it, in order. */
function told(worker: Worker): [string, Backlog][] {
  const said: [string, Backlog][] = [];
  worker.events.on('backlog', (backlog) => said.push(['backlog', backlog]));
  worker.events.on('caughtUp', (backlog) => said.push(['caughtUp', backlog]));
  return said;
}

describe('a worker with warn', () => {
  test('says once that too many jobs are ready, and once that it has caught up', async () => {
    const { queue, log } = open();
    await queue.enqueueMany(Array.from({ length: 5 }, () => ({ kind: 'job', payload: 1 }) as const));
    await queue.pause();
    const worker = queue.work({ job: () => {} }, { warn: { ready: 3, every: '100ms' } });
    const said = told(worker);
    await until('it was said', () => said.length > 0);
    expect(said).toEqual([['backlog', { ready: 5, oldestMs: expect.any(Number), exceeds: ['ready'] }]]);
    using looks = probe.watch('queue.looked_at_backlog');
    await queue.enqueue('job', 2);
    await looks.next(({ queue: name, ready }) => name === queue.name && ready === 6);
    await queue.resume();
    await until('it was said that it is over', () => said.length > 1);
    expect(said.slice(1)).toEqual([['caughtUp', { ready: expect.any(Number), oldestMs: null, exceeds: [] }]]);
    expect(log.count('warn', /has a backlog: 5 jobs are ready/)).toBe(1);
    expect(log.count('info', /has caught up/)).toBe(1);
    await worker.stop();
  });

  test('says that the oldest has waited for too long', async () => {
    const { queue } = open();
    await queue.enqueue('job', 1);
    await queue.pause();
    const worker = queue.work({ job: () => {} }, { warn: { oldest: '300ms', ready: 10_000, every: '100ms' } });
    const said = told(worker);
    await until('it was said', () => said.length > 0);
    const [[, backlog] = ['', undefined]] = said;
    expect(backlog).toMatchObject({ ready: 1, exceeds: ['oldest'] });
    expect(backlog?.oldestMs).toBeGreaterThanOrEqual(300);
    await worker.stop();
  });

  test('says nothing once it is stopped, though its question is answered late', async () => {
    const events = new Events<WorkerEvents>();
    const said: unknown[] = [];
    for (const name of ['backlog', 'error'] as const) events.on(name, (payload) => said.push(payload));
    let answer: ((stats: Stats) => void) | undefined;
    const stats = (): Promise<Stats> =>
      new Promise((resolve) => {
        answer = resolve;
      });
    const limits = { ready: 1, oldest: undefined, every: 100 };
    const loop = watchBacklog({ queue: 'late', limits, stats, events, logger: recordLog() });
    await Promise.resolve();
    expect(answer).toBeDefined();
    const stopped = loop.stop();
    answer?.({ ready: 5, oldestReadyMs: 10 });
    await stopped;
    expect(said).toEqual([]);
  });

  test('says nothing once it is stopped, though its question is refused late', async () => {
    const events = new Events<WorkerEvents>();
    const said: unknown[] = [];
    for (const name of ['backlog', 'error'] as const) events.on(name, (payload) => said.push(payload));
    let refuse: ((error: Error) => void) | undefined;
    const stats = (): Promise<Stats> =>
      new Promise((_resolve, reject) => {
        refuse = reject;
      });
    const limits = { ready: 1, oldest: undefined, every: 100 };
    const loop = watchBacklog({ queue: 'refused', limits, stats, events, logger: recordLog() });
    await Promise.resolve();
    expect(refuse).toBeDefined();
    const stopped = loop.stop();
    refuse?.(new Error('the engine has been stopped'));
    await stopped;
    expect(said).toEqual([]);
  });

  test('says that it could not look, and goes on', async () => {
    const events = new Events<WorkerEvents>();
    const errors: unknown[] = [];
    const found: Backlog[] = [];
    events.on('error', ({ error }) => errors.push(error));
    events.on('backlog', (backlog) => found.push(backlog));
    const refused = new Error('the database is away');
    const answers = [Promise.reject(refused), Promise.resolve({ ready: 5, oldestReadyMs: 10 })];
    const limits = { ready: 1, oldest: 5, every: 100 };
    const stats = (): Promise<Stats> => answers.shift() ?? Promise.resolve({ ready: 5, oldestReadyMs: 10 });
    const loop = watchBacklog({ queue: 'away', limits, stats, events, logger: recordLog() });
    await until('it was found', () => found.length > 0);
    await loop.stop();
    expect(errors).toEqual([refused]);
    expect(found).toEqual([{ ready: 5, oldestMs: 10, exceeds: ['ready', 'oldest'] }]);
  });

  test.each([
    [{}, 'warn needs a limit'],
    [{ every: '1s' }, 'warn needs a limit'],
    [{ ready: 0 }, 'warn.ready'],
    [{ ready: 10_001 }, 'warn.ready'],
    [{ oldest: 0 }, 'warn.oldest'],
    [{ ready: 1, every: 1 }, 'warn.every'],
    [{ redy: 1 }, 'unknown option "warn.redy" for work'],
  ] as const)('refuses %o', (warn, message) => {
    const { queue } = open();
    const call = (): Worker => queue.work({ job: () => {} }, { warn } as object);
    expect(call).toThrow(InvalidInput);
    expect(call).toThrow(message);
  });
});
