import type { DocumentLock, FileStore, Reload } from '../store.ts';
import type { PastVersion, Readable } from '../version.ts';

/** Transactions and processes that are at work on a document. */
export interface FileExplanation {
  readonly id: string;
  /** Null: there is no such document. */
  readonly version: PastVersion | null;
  /** Transactions that hold the document: readers that share it, or one that changes it. */
  readonly holders: readonly DocumentLock[];
  /** Waiting transactions, in the order in which they will hold the document. */
  readonly waiters: readonly DocumentLock[];
  /** Processes that fetch the live version for hot copies now. They hold no lock that others wait for. */
  readonly reloads: readonly Reload[];
}

/** @internal */
export async function explainFile(store: FileStore, id: string): Promise<FileExplanation> {
  const [version, standing] = [await store.current(id, undefined), await store.standing(id)];
  return {
    id,
    version: version === undefined ? null : withoutChecks(version),
    holders: standing.filter((each) => each.holds),
    waiters: standing.filter((each) => !each.holds),
    reloads: version === undefined ? [] : await store.reloads(version.sha256),
  };
}

/** A version without the checksums, which say nothing to people. */
export function withoutChecks(version: Readable): PastVersion {
  const { checks: _, ...rest } = version;
  return rest;
}
