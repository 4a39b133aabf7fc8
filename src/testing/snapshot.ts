import type { WorldActor } from './postgres.ts';

/**
 * All actors as text, which is the same for two runs with the same result. Ids differ from run to run, so the text shows each
 * actor by its place: `server.2` is the second server that was created, `formation.1/server.2` the second one of the first
 * formation.
 */
export function snapshot(actors: readonly WorldActor[]): string {
  const names = new Map<string, string>();
  const counts = new Map<string, number>();
  for (const { id, parent, type, key } of actors) {
    const family = parent === null ? '' : `${names.get(parent) ?? parent}/`;
    const place = `${family}${type}`;
    const n = (counts.get(place) ?? 0) + 1;
    counts.set(place, n);
    names.set(id, `${place}.${key ?? n}`);
  }
  const named = (_key: string, value: unknown): unknown =>
    typeof value === 'string' ? (names.get(value) ?? value) : value;
  return actors
    .map(({ id, parent: _parent, ...rest }) => `${names.get(id) ?? id} ${JSON.stringify(rest, named)}`)
    .sort()
    .join('\n');
}
