import { createHash } from 'node:crypto';
import { StoreRefused } from '../base/errors.ts';
import { isObject } from '../base/options/shape.ts';

/** The content of the marker in a content store: its owner, and the pass of its collector. */
export interface Marker {
  readonly store: string;
  readonly namespace: string;
  readonly pass: number;
  /** The database that collects in this store; empty: none has collected yet. */
  readonly database: string;
}

const FORMAT = 1;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export function toMarkerText({ store, namespace, pass, database }: Marker): string {
  const json = JSON.stringify({ format: FORMAT, store, namespace, pass, database });
  return `${json.slice(0, -1)},"sha256":"${hashOf(json)}"}\n`;
}

/** @returns undefined when it is damaged @throws StoreRefused  it is whole, and was written by a newer version of Pawl */
export function readMarkerText(text: string, where: string): Marker | undefined {
  const fields = checked(text);
  if (fields === undefined) return undefined;
  const { format, store, namespace, pass, database } = fields;
  if (format !== FORMAT) {
    throw new StoreRefused(
      `the store ${where} has a marker of format ${String(format)}, and this version reads ${FORMAT}; use the version that wrote it`,
    );
  }
  const isFit =
    typeof store === 'string' &&
    UUID.test(store) &&
    typeof namespace === 'string' &&
    typeof pass === 'number' &&
    Number.isSafeInteger(pass) &&
    typeof database === 'string';
  return isFit ? { store, namespace, pass, database } : undefined;
}

/** The fields, if their hash is right: a bit that flipped in transfer or in the store changes the hash. */
function checked(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const json: unknown = JSON.parse(text);
    if (!isObject(json)) return undefined;
    const { sha256, ...fields } = json;
    return sha256 === hashOf(JSON.stringify(fields)) ? fields : undefined;
  } catch {
    // A text that is no JSON is damaged like any other.
    return undefined;
  }
}

function hashOf(json: string): string {
  return createHash('sha256').update(json).digest('hex');
}
