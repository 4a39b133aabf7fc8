import type { Complaint } from '../queue/history.ts';
import type { Deed } from './plan.ts';

/** The notes of a client. `op` names one operation of one client, whose bytes no other operation has. */
export type ClientEvent =
  | { readonly do: 'born' }
  | {
      readonly do: 'ask';
      readonly op: string;
      readonly deed: Deed;
      readonly id: string;
      /** The hash of the bytes; null if the operation has no bytes of its own. */
      readonly sha256: string | null;
    }
  /** The `ifVersion` of the operation. */
  | { readonly do: 'expect'; readonly op: string; readonly version: number }
  | { readonly do: 'told'; readonly op: string; readonly version: number; readonly sha256: string | null }
  /** A whole version was read, with the hash of the bytes that the reader got. */
  | {
      readonly do: 'got';
      readonly op: string;
      readonly version: number;
      readonly sha256: string;
      readonly digest: string;
    }
  | { readonly do: 'failed'; readonly op: string; readonly code: string; readonly message: string }
  /** The operation took longer than any limit. */
  | { readonly do: 'hung'; readonly op: string }
  | { readonly do: 'done' };

/** The notes of a sweeper. */
export type SweeperEvent =
  | { readonly do: 'born' }
  | { readonly do: 'swept' }
  | { readonly do: 'quarantined'; readonly names: readonly string[] }
  | { readonly do: 'failed'; readonly code: string; readonly message: string }
  | { readonly do: 'hung' };

/** One operation and its outcome. */
export interface Wish {
  readonly op: string;
  readonly deed: Deed;
  readonly id: string;
  readonly sha256: string | null;
  readonly askedAt: number;
  readonly expected: number | undefined;
  readonly told: { readonly at: number; readonly version: number; readonly sha256: string | null } | undefined;
  readonly got:
    | { readonly at: number; readonly version: number; readonly sha256: string; readonly digest: string }
    | undefined;
  readonly failed: { readonly at: number; readonly code: string; readonly message: string } | undefined;
}

/** A row of an object. */
export interface ObjectRow {
  readonly object: string;
  readonly id: string;
  readonly version: number | null;
  readonly state: string;
  readonly sha256: string | null;
  readonly retiredMs: number | null;
  readonly deletedMs: number | null;
}

export interface DocumentRow {
  readonly id: string;
  readonly version: number;
  readonly object: string | null;
}

/** The data of the checker, read when all work has ended and all due objects are collected. */
export interface FilesHistory {
  readonly wishes: readonly Wish[];
  readonly rows: readonly ObjectRow[];
  readonly documents: readonly DocumentRow[];
  /** Operations whose transactions were committed, by the rows of these transactions. */
  readonly committed: readonly string[];
  /** The objects in the store. */
  readonly stored: readonly { readonly name: string; readonly sha256: string }[];
  readonly quarantined: readonly string[];
  /** Names that were put into the store without a row. */
  readonly strangers: readonly string[];
  /** Hashes of bytes that rotted in the store. */
  readonly rotten: readonly string[];
  /** Keys of uploads in parts that are neither complete nor aborted. */
  readonly unfinished: readonly string[];
  /** Whether bytes could be damaged in transfer. */
  readonly isWayDamaged: boolean;
  readonly retainMs: number;
  /** The time that current readers have after a replacement. */
  readonly graceMs: number;
  /** When the schedule ended this time for all objects, so that it need not wait. */
  readonly hastenedMs: number;
  readonly complaints: readonly Complaint[];
}
