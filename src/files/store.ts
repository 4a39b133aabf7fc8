import type { StoreProbe } from './content.ts';
import type { Fingerprint } from './digest.ts';
import type { PastVersion, Readable } from './version.ts';

/** What makes an uploaded object a version of its document. */
export interface PublishCall extends Fingerprint {
  readonly id: string;
  readonly object: string;
  readonly contentType: string | undefined;
  readonly meta: Readonly<Record<string, string>> | undefined;
  readonly author: string | undefined;
  readonly ifVersion: number | undefined;
  /** How long the version it replaces is kept. */
  readonly retainMs: number;
}

/** What came of a publication; a refusal has changed nothing. `lost`: its object is in that state, or unknown (null). */
export type PublishOutcome =
  | { readonly version: number; readonly previous: number | null; readonly writtenMs: number }
  | { readonly conflict: number }
  | { readonly lost: string | null };

export type RemoveOutcome = { readonly version: number } | { readonly conflict: number } | { readonly absent: true };

/** What became of an upload, once nothing can change it any more. */
export type UploadFate =
  | { readonly kind: 'published'; readonly version: PastVersion }
  | { readonly kind: 'unpublished' }
  | { readonly kind: 'collected' };

/** Who stands at the gate of a document. */
export interface DocumentLock {
  readonly pid: number;
  readonly mode: 'share' | 'exclusive';
  /** False: it waits. */
  readonly holds: boolean;
  readonly since: Date | undefined;
  readonly applicationName: string | null;
  readonly blockedBy: readonly number[];
}

/** Who fetches a version for hot copies now. */
export interface Reload {
  /** The host and folder it is for, or `*` for all. */
  readonly scope: string;
  readonly host: string;
  readonly pid: number;
  readonly since: Date;
  /** When another one may take over, unless it is renewed. */
  readonly expiresAt: Date;
}

/** What the database knows of the content store. */
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
  /** Of which database. */
  readonly database: string;
}

/** An object the collector has claimed. */
export interface CollectorClaim {
  readonly object: string;
  /** `retired`: it is condemned now, and deleted later. */
  readonly was: 'pending' | 'retired' | 'deleting' | 'deleted';
  readonly upload: string | null;
  /** It never became a version. */
  readonly unfinished: boolean;
  /** How often it was deleted in the store before. */
  readonly deletions: number;
  /** Which claim it is. */
  readonly claim: string;
}

/**
 * The port to a database, for the files of one namespace. `tx` is the caller's own transaction; what is called without one is
 * committed at once.
 */
export interface FileStore {
  intend(id: string, object: string, pendingMs: number, host: string, pid: number): Promise<void>;
  noteUpload(object: string, upload: string): Promise<void>;
  /** Lets the collector have it at once, unless it was published or is just being. */
  abandon(object: string): Promise<void>;
  publish(tx: unknown, call: PublishCall): Promise<PublishOutcome>;
  remove(tx: unknown, id: string, ifVersion: number | undefined, retainMs: number): Promise<RemoveOutcome>;
  /** The version now, which stays so until the transaction ends. */
  share(tx: unknown, id: string): Promise<Readable | undefined>;
  /** @param version  undefined: the live one */
  current(id: string, version: number | undefined): Promise<Readable | undefined>;
  list(prefix: string, after: string | undefined, limit: number): Promise<PastVersion[]>;
  past(id: string, before: number | undefined, limit: number): Promise<PastVersion[]>;
  /** Waits for a transaction that is still at it, no longer than so. */
  outcome(object: string, deadlineMs: number): Promise<UploadFate>;
  standing(id: string): Promise<DocumentLock[]>;
  attach(store: string, kind: string): Promise<StoreRow>;
  /** The store that the namespace is tied to; undefined: to none. */
  row(): Promise<StoreRow | undefined>;
  noteProbe(probe: StoreProbe): Promise<void>;
  beginPass(markerPass: number, markerDatabase: string): Promise<CollectorPass | { readonly halted: string }>;
  rearm(markerPass: number): Promise<CollectorPass>;
  claim(graceMs: number, leaseMs: number, limit: number): Promise<CollectorClaim[]>;
  /** Passes over what was claimed anew meanwhile. */
  settle(claimed: readonly CollectorClaim[], tombstoneMs: number, historyMs: number): Promise<void>;
  /** Whether there is anything to claim. */
  isDue(): Promise<boolean>;
  due(): Promise<Readonly<Record<'pending' | 'retired' | 'deleting' | 'deleted' | 'due', number>>>;
  known(objects: readonly string[]): Promise<ReadonlySet<string>>;
  readable(after: string | undefined, upto: string | undefined): Promise<PastVersion[]>;
  /** @returns 0: it is the owner's, for so long; else how long its owner has it at most */
  takeReload(scope: string, sha256: string, owner: string, leaseMs: number): Promise<number>;
  endReload(scope: string, sha256: string, owner: string): Promise<void>;
  reloads(sha256: string): Promise<Reload[]>;
  isTransient(error: unknown): boolean;
}
