import type { StoreProbe } from './content.ts';
import type { Fingerprint } from './digest.ts';
import type { PastVersion, Readable } from './version.ts';

/** The values with which an uploaded object becomes a version of its document. */
export interface PublishCall extends Fingerprint {
  readonly id: string;
  readonly object: string;
  readonly contentType: string | undefined;
  readonly meta: Readonly<Record<string, string>> | undefined;
  readonly author: string | undefined;
  readonly ifVersion: number | undefined;
  /** How long the replaced version is kept. */
  readonly retainMs: number;
}

/** The outcome of a publication; a refusal has changed nothing. `lost`: the object is in this state, or unknown (null). */
export type PublishOutcome =
  | { readonly version: number; readonly previous: number | null; readonly writtenMs: number }
  | { readonly conflict: number }
  | { readonly lost: string | null };

export type RemoveOutcome = { readonly version: number } | { readonly conflict: number } | { readonly absent: true };

/** The final state of an upload. */
export type UploadFate =
  | { readonly kind: 'published'; readonly version: PastVersion }
  | { readonly kind: 'unpublished' }
  | { readonly kind: 'collected' };

/** A transaction that holds the gate of a document or waits at it. */
export interface DocumentLock {
  readonly pid: number;
  readonly mode: 'share' | 'exclusive';
  /** False: it waits. */
  readonly holds: boolean;
  readonly since: Date | null;
  readonly applicationName: string | null;
  readonly blockedBy: readonly number[];
}

/** A process that fetches a version for hot copies now. */
export interface Reload {
  /** The host and folder for which it fetches, or `*` for all hosts. */
  readonly scope: string;
  readonly host: string;
  readonly pid: number;
  readonly since: Date;
  /** When another process may take over, unless the lease is renewed. */
  readonly expiresAt: Date;
}

/** What the database knows about the content store. */
export interface StoreRow {
  readonly store: string;
  readonly kind: string;
  readonly probe: StoreProbe | null;
  readonly pass: number;
  readonly database: string;
  readonly haltedBecause: string | null;
}

/** A pass of the collector. */
export interface CollectorPass {
  readonly pass: number;
  /** The id of the database that collects. */
  readonly database: string;
}

/** An object the collector has claimed. */
export interface CollectorClaim {
  readonly object: string;
  /** `retired`: it is condemned now, and deleted later. */
  readonly was: 'pending' | 'retired' | 'deleting' | 'deleted';
  readonly upload: string | null;
  /** The object never became a version. */
  readonly unfinished: boolean;
  /** How often it was deleted in the store before. */
  readonly deletions: number;
  /** The number of the claim. */
  readonly claim: string;
}

/**
 * The port to a database, for the files of one namespace. `tx` is the caller's own transaction; calls without one are
 * committed at once.
 */
export interface FileStore {
  intend(id: string, object: string, pendingMs: number, host: string, pid: number): Promise<void>;
  noteUpload(object: string, upload: string): Promise<void>;
  /** Lets the collector delete the object at once, unless it was published or is being published. */
  abandon(object: string): Promise<void>;
  publish(tx: unknown, call: PublishCall): Promise<PublishOutcome>;
  remove(tx: unknown, id: string, ifVersion: number | undefined, retainMs: number): Promise<RemoveOutcome>;
  /** The live version, which does not change until the transaction ends. */
  share(tx: unknown, id: string): Promise<Readable | undefined>;
  /** @param version  undefined: the live one */
  current(id: string, version: number | undefined): Promise<Readable | undefined>;
  list(prefix: string, after: string | undefined, limit: number): Promise<PastVersion[]>;
  past(id: string, before: number | undefined, limit: number): Promise<PastVersion[]>;
  /** Waits, up to the deadline, for a transaction that is still publishing it. */
  outcome(object: string, deadlineMs: number): Promise<UploadFate>;
  standing(id: string): Promise<DocumentLock[]>;
  attach(store: string, kind: string): Promise<StoreRow>;
  /** The store to which the namespace is tied; undefined: to none. */
  row(): Promise<StoreRow | undefined>;
  noteProbe(probe: StoreProbe): Promise<void>;
  beginPass(markerPass: number, markerDatabase: string): Promise<CollectorPass | { readonly halted: string }>;
  rearm(markerPass: number): Promise<CollectorPass>;
  claim(graceMs: number, leaseMs: number, limit: number): Promise<CollectorClaim[]>;
  /** Skips objects that another pass has claimed meanwhile. */
  settle(claimed: readonly CollectorClaim[], tombstoneMs: number, historyMs: number): Promise<void>;
  /** Whether there is anything to claim. */
  isDue(): Promise<boolean>;
  due(): Promise<Readonly<Record<'pending' | 'retired' | 'deleting' | 'deleted' | 'due', number>>>;
  known(objects: readonly string[]): Promise<ReadonlySet<string>>;
  /** In the order of their objects. */
  readable(after: string | undefined, upto: string | undefined, limit: number): Promise<PastVersion[]>;
  /** @returns 0 if `owner` has the lease; else the longest time that another process has it */
  takeReload(scope: string, sha256: string, owner: string, leaseMs: number): Promise<number>;
  endReload(scope: string, sha256: string, owner: string): Promise<void>;
  reloads(sha256: string): Promise<Reload[]>;
  isTransient(error: unknown): boolean;
}
