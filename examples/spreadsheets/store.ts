import type { Unit, Worker } from 'pawl/queue';
import type { Create, Update } from './payload.ts';
import type { Row } from './sheet.ts';

/** A spreadsheet, as the front end and the back ends know it. */
export interface Spreadsheet {
  readonly id: string;
  readonly columns: readonly string[];
  readonly rows: readonly Row[];
  /** How often its file has been written; 0 before the first time. */
  readonly version: number;
  /** The current file's name in the folder, once there is one. */
  readonly file: string | null;
  /** The jobs that its version was written for, where a job may come again after that. */
  readonly jobs: readonly string[];
  readonly createdBy: string;
  readonly createdAt: Date;
  readonly writtenAt: Date | null;
}

/** What a unit makes of a spreadsheet. */
export interface Version {
  readonly rows: readonly Row[];
  readonly version: number;
  readonly file: string;
  readonly jobs: readonly string[];
}

/** One request for a spreadsheet, as the queue knows it. */
export interface Request {
  readonly id: string;
  readonly kind: string;
  readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
  readonly attempt: number;
  readonly enqueuedAt: Date;
  readonly settledAt: Date | null;
  readonly error: string | null;
}

/** One move of one request. */
export interface Move {
  readonly job: string;
  readonly at: Date;
  readonly from: string | null;
  readonly to: string;
  readonly attempt: number;
  readonly processId: string | null;
  readonly reason: string;
  readonly error: string | null;
}

/** What the front end answers with. */
export interface Acceptance {
  readonly job: string;
  /** There was such a request already, and `job` is that one's. */
  readonly duplicate: boolean;
}

/** What a back end does: one function for each kind of request. */
export interface SheetHandlers {
  readonly create: (unit: Unit<Create>) => Promise<{ readonly version: number }>;
  readonly update: (unit: Unit<Update>) => Promise<{ readonly version: number }>;
}

export interface BackEndOptions {
  readonly concurrency: number;
  /** How long a dead back end keeps what it had begun, where that is not the database's to say. In milliseconds. */
  readonly leaseMs: number;
}

/** The queue and the spreadsheets, on one engine: all that the front end and the back ends share, the folder excepted. */
export interface SheetStore {
  /** Makes the tables that are missing. Safe to call from many processes at once. */
  prepare(): Promise<void>;
  /** Which database it is, when that answers. */
  describe(): Promise<Readonly<Record<string, string>>>;
  /** Adds a spreadsheet together with the job that writes it, or finds those that are there. */
  create(id: string, request: Create, by: string): Promise<Acceptance>;
  /** The first update of a quiet spreadsheet waits for others; all that come meanwhile are one unit, and one file. */
  update(id: string, request: Update, gatherMs: number): Promise<Acceptance>;
  find(id: string): Promise<Spreadsheet | undefined>;
  /** The latest requests for a spreadsheet, newest first. */
  requests(id: string, limit: number): Promise<Request[]>;
  /** Everything that happened to these requests, latest first. */
  moves(requests: readonly Request[]): Promise<Move[]>;
  /** Starts a back end. */
  work(handlers: SheetHandlers, options: BackEndOptions): Worker;
  /** The spreadsheet of a unit that begins. It is the unit's until that ends. */
  begin(unit: Unit): Promise<Spreadsheet | undefined>;
  /** Makes a file that has been written the current one, unless another back end has the unit by now. */
  save(unit: Unit, sheet: Spreadsheet, next: Version): Promise<void>;
  /** Whether an error is the database's, and may be gone a moment later. */
  isTransient(error: unknown): boolean;
  stop(): Promise<void>;
}

/** What a demonstration looks at, besides. */
export interface ObservedStore extends SheetStore {
  readonly queue: { readonly name: string; pause(): Promise<void>; resume(): Promise<void> };
  isEmpty(): Promise<boolean>;
  /** Where each of these jobs is now; one that is missing here does not exist. */
  statuses(jobs: readonly string[]): Promise<ReadonlyMap<string, Request['status']>>;
  /** How many jobs were done more than once. Must be 0. */
  countDoubleRuns(): Promise<number>;
  /** The spreadsheets that a process had begun to write, and had not when it was killed. */
  interruptedBy(pid: number): Promise<string[]>;
}
