import type { Complaint } from '../queue/history.ts';
import type { Deed } from './plan.ts';

/** What a client notes. `op` names one operation of one client, and its bytes are no other one's. */
export type ClientEvent =
  | { readonly do: 'born' }
  | {
      readonly do: 'ask';
      readonly op: string;
      readonly deed: Deed;
      readonly id: string;
      /** Of the bytes; null where they are not its own. */
      readonly sha256: string | null;
    }
  /** The `ifVersion` it goes on with. */
  | { readonly do: 'expect'; readonly op: string; readonly version: number }
  | { readonly do: 'told'; readonly op: string; readonly version: number; readonly sha256: string | null }
  /** All of a version, with the hash of what was passed on. */
  | {
      readonly do: 'got';
      readonly op: string;
      readonly version: number;
      readonly sha256: string;
      readonly digest: string;
    }
  | { readonly do: 'failed'; readonly op: string; readonly code: string; readonly message: string }
  /** It has taken longer than any limit. */
  | { readonly do: 'hung'; readonly op: string }
  | { readonly do: 'done' };

/** What a sweeper notes. */
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

/** All that the checker looks at, read when nothing moves any more and everything that is due was collected. */
export interface FilesHistory {
  readonly wishes: readonly Wish[];
  readonly rows: readonly ObjectRow[];
  readonly documents: readonly DocumentRow[];
  /** Operations whose transactions were committed, by the rows they wrote there. */
  readonly committed: readonly string[];
  /** What lies where objects are. */
  readonly stored: readonly { readonly name: string; readonly sha256: string }[];
  readonly quarantined: readonly string[];
  /** Names that were put into the store without a row. */
  readonly strangers: readonly string[];
  /** Hashes of bytes that rotted in the store. */
  readonly rotten: readonly string[];
  /** Keys of uploads in parts that are neither complete nor aborted. */
  readonly unfinished: readonly string[];
  /** Whether bytes could be damaged on their way. */
  readonly isWayDamaged: boolean;
  readonly retainMs: number;
  /** The time that the readers before have. */
  readonly graceMs: number;
  /** When that time was ended for all, so that the schedule need not wait for it. */
  readonly hastenedMs: number;
  readonly complaints: readonly Complaint[];
}
