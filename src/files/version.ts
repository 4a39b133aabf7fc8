import type { Fingerprint } from './digest.ts';

/** The states of a version, from being published to being forgotten. */
export type FileState = 'live' | 'retired' | 'deleting' | 'deleted';

/** One version of a document. */
export interface FileVersion {
  readonly id: string;
  /** Rises with every change of the document, and never restarts. */
  readonly version: number;
  readonly size: number;
  /** The SHA-256 of all its bytes, in hex. */
  readonly sha256: string;
  readonly contentType: string | null;
  readonly meta: Readonly<Record<string, string>>;
  /** The author that the writer named; it is not verified. */
  readonly author: string | null;
  readonly writtenAt: Date;
  /** The name of its bytes in the content store. */
  readonly object: string;
}

/** A version in the history of a document. */
export interface PastVersion extends FileVersion {
  /** `live`: readers get it by default. `retired`: it can be read and restored by its number. Else its bytes are gone. */
  readonly state: FileState;
  readonly retiredAt: Date | null;
  /** For a retired version: its bytes are kept at least until then. */
  readonly keptUntil: Date | null;
}

/** A version with what is needed to check its bytes. */
export interface Readable extends PastVersion, Fingerprint {}

/** A version as the database returns it. */
export interface VersionJson {
  readonly id: string;
  readonly object: string;
  readonly version: number;
  readonly state: FileState;
  readonly size: number;
  readonly sha256: string;
  readonly contentType: string | null;
  readonly meta: Readonly<Record<string, string>> | null;
  readonly author: string | null;
  readonly writtenMs: number;
  readonly retiredMs: number | null;
  readonly keptUntilMs: number | null;
  readonly checks?: string | null;
}

export function toPastVersion(json: VersionJson): PastVersion {
  return {
    ...toVersion(json),
    state: json.state,
    retiredAt: toDate(json.retiredMs),
    keptUntil: toDate(json.keptUntilMs),
  };
}

export function toReadable(json: VersionJson): Readable {
  return { ...toPastVersion(json), checks: Buffer.from(json.checks ?? '', 'base64') };
}

export function toVersion(json: VersionJson): FileVersion {
  const { id, version, size, sha256, object } = json;
  return {
    id,
    version,
    size,
    sha256,
    contentType: json.contentType,
    meta: json.meta ?? {},
    author: json.author,
    writtenAt: new Date(json.writtenMs),
    object,
  };
}

function toDate(ms: number | null): Date | null {
  return ms === null ? null : new Date(ms);
}
