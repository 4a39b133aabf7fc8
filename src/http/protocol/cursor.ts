import { InvalidInput } from '../../base/errors.ts';
import { show } from '../../base/options/refusal.ts';
import { isStorable } from '../../base/storable.ts';
import { isId } from './field.ts';

/** The beginning of the next page, as an opaque text for users. */
export function writeCursor(...parts: readonly string[]): string {
  return Buffer.from(JSON.stringify([1, ...parts])).toString('base64url');
}

/** @throws InvalidInput  it is no cursor of ours, or the cursor of another list */
export function readCursor(
  after: string | undefined,
  length: number,
  fits: (part: string) => boolean = () => true,
): string[] | undefined {
  if (after === undefined) return undefined;
  try {
    const [version, ...parts]: unknown[] = JSON.parse(Buffer.from(after, 'base64url').toString());
    const texts = parts.filter((part) => typeof part === 'string' && fits(part) && isStorable(part));
    if (version === 1 && parts.length === length && texts.length === length) return texts as string[];
  } catch {
    // A text that cannot be read gets the refusal below.
  }
  throw new InvalidInput(`${show(after)} is no cursor of this list; pass the "after" of the page before`, {
    field: 'after',
  });
}

const LAST_ID = '9223372036854775807';

/** The cursor of a list by falling id. */
export function readIdCursor(after: string | undefined): string {
  return readCursor(after, 1, isId)?.[0] ?? LAST_ID;
}

/** One more row than requested shows whether there is a next page. */
export function pageOf<T>(
  rows: readonly T[],
  limit: number,
  cursorOf: (row: T) => string,
): { items: readonly T[]; after: string | null } {
  const items = rows.slice(0, limit);
  const last = items.at(-1);
  return { items, after: rows.length > limit && last !== undefined ? cursorOf(last) : null };
}
