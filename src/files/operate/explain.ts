import type { DocumentLock, FileStore, Reload } from '../store.ts';
import type { PastVersion, Readable } from '../version.ts';

/** What stands between a document and its next version. */
export interface FileExplanation {
  readonly id: string;
  /** Undefined when there is no such document. */
  readonly version: PastVersion | undefined;
  /** Transactions that hold the document: readers that share it, or one that changes it. */
  readonly holders: readonly DocumentLock[];
  /** In the order in which they will have it. */
  readonly waiters: readonly DocumentLock[];
  /** Who fetches the live version for hot copies now. They hold nothing that others wait for. */
  readonly reloads: readonly Reload[];
}

/** @internal */
export async function explainFile(store: FileStore, id: string): Promise<FileExplanation> {
  const [version, standing] = [await store.current(id, undefined), await store.standing(id)];
  return {
    id,
    version: version === undefined ? undefined : withoutChecks(version),
    holders: standing.filter((each) => each.holds),
    waiters: standing.filter((each) => !each.holds),
    reloads: version === undefined ? [] : await store.reloads(version.sha256),
  };
}

/** A version as people see it. */
export function withoutChecks(version: Readable): PastVersion {
  const { checks: _, ...rest } = version;
  return rest;
}
