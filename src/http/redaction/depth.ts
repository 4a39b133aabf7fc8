/** The deepest nesting of a body. A deeper value from elsewhere is shown up to this depth. */
export const DEEPEST = 500;

/**
 * Whether a value has more than `most` levels of lists and objects. With a list and not by recursion: JSON.parse accepts deeper
 * nesting than the stack.
 */
export function isDeeper(value: unknown, most: number): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; ; depth += 1) {
    const inside = level.filter(isObjectOrList);
    if (inside.length === 0) return false;
    if (depth === most) return true;
    level = inside.flatMap((one): unknown[] => Object.values(one));
  }
}

function isObjectOrList(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
