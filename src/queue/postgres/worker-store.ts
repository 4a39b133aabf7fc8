import type { RecallResult } from '../../base/handoff/handoff.ts';
import { STOP_MS } from '../../base/work/deadlines.ts';
import type { AnswerOptions, PostgresEngine } from '../../engine/postgres/index.ts';
import type { Charge, ChargedJob, RescueAnswer } from '../lost-jobs.ts';
import type { Heartbeat, HeartbeatAnswer, WorkerRow } from '../store.ts';
import { limited, only, type Runner } from './runner.ts';
import * as sql from './statements.ts';

/** The most jobs that one pruning removes: a few milliseconds, so that it never blocks others for long. */
const PRUNE_AT_ONCE = 5000;

/** The statements of a worker's life: its row, its leases, and its chores after the death of others. */
export abstract class PostgresWorkerStore {
  readonly engine: PostgresEngine;
  /** How long each statement may take; statements of a worker have a limit, those of a caller have none. */
  protected readonly answer: AnswerOptions;
  protected readonly runner: Runner;
  /**
   * Runs the statements that move jobs of keys. After waiting for a lock, they must see what others committed meanwhile, and
   * only read committed allows that. If the database has another default, each statement gets a transaction of its own.
   */
  protected keys: Runner;
  /** Where the queue was registered; see HERE in statements.ts. */
  protected schema = 0;

  constructor(engine: PostgresEngine, answer: AnswerOptions) {
    this.engine = engine;
    this.answer = answer;
    this.runner = limited(engine, answer);
    this.keys = this.runner;
  }

  async addWorker(row: WorkerRow): Promise<number> {
    const takes = row.takes === undefined ? null : JSON.stringify(row.takes);
    const values = [this.here(row.queue), row.host, row.pid, row.concurrency, row.leaseMs, row.hold, takes];
    const [added] = await this.runner.query<{ id: string }>(sql.ADD_WORKER, values);
    return Number(only(added).id);
  }

  async beat(beats: readonly Heartbeat[], runner: Runner = this.engine): Promise<HeartbeatAnswer> {
    const [row] = await runner.query<{ answer: HeartbeatAnswer }>(sql.BEAT, [JSON.stringify(beats)], this.answer);
    return only(row).answer;
  }

  async recall(queue: number, worker: number, known: readonly number[]): Promise<RecallResult> {
    const [row] = await this.keys.query<{ answer: { jobs: number; offers: number[] } }>(sql.RECALL, [
      queue,
      worker,
      known,
    ]);
    const { jobs, offers } = only(row).answer;
    return { lost: jobs, offers };
  }

  async leave(queue: number, worker: number, known: readonly number[]): Promise<void> {
    await this.keys.query(sql.LEAVE, [queue, worker, known]);
  }

  async setWants(worker: number, wants: boolean): Promise<void> {
    await this.runner.query(sql.WANTS, [worker, wants]);
  }

  /** A stop does not wait long for this: without it, the row is removed after its lease. */
  async removeWorker(worker: number): Promise<void> {
    await this.engine.query(sql.REMOVE_WORKER, [worker], { deadlineMs: STOP_MS });
  }

  async rescue(queue: number, mine: readonly number[]): Promise<RescueAnswer> {
    const [row] = await this.keys.query<RescueAnswer>(sql.RESCUE, [queue, mine]);
    return only(row);
  }

  async charge(charge: Charge): Promise<ChargedJob[]> {
    const [row] = await this.keys.query<{ charged: ChargedJob[] }>(sql.CHARGE, [JSON.stringify(charge)]);
    return only(row).charged;
  }

  async prune(queue: number): Promise<number> {
    const [row] = await this.runner.query<{ jobs: number }>(sql.PRUNE, [queue, PRUNE_AT_ONCE]);
    return only(row).jobs;
  }

  protected here(queue: number): number {
    return this.schema * 65_536 + queue;
  }
}
