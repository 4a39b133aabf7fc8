/** As deep as a body may be nested. What comes from elsewhere and is deeper is shown as far as this. */
export const DEEPEST = 500;

/** Whether a value has more than `most` levels of lists and objects. By a list and not by calls of itself: JSON.parse takes what no stack does. */
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
