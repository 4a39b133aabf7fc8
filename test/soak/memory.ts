/** The memory of a program at one moment of its run. */
export interface Sample {
  readonly atMs: number;
  readonly bytes: number;
}

/** Medians of the second and of the last quarter of a run, in bytes. */
export interface Trend {
  readonly isFlat: boolean;
  readonly early: number;
  readonly late: number;
}

/** More than this is growth: what a collector leaves lying about differs by some tens of megabytes from look to look. */
const GROWTH = { factor: 1.2, bytes: 32 * 1024 ** 2 };

/** Compares the second quarter of a run, when everything has been loaded and compiled, with the last one. */
export function trendOf(samples: readonly Sample[]): Trend {
  const endMs = samples.at(-1)?.atMs ?? 0;
  const between = (from: number, to: number): number =>
    median(samples.filter(({ atMs }) => atMs >= endMs * from && atMs <= endMs * to).map(({ bytes }) => bytes));
  const [early, late] = [between(0.25, 0.5), between(0.75, 1)];
  return { isFlat: early > 0 && late <= early * GROWTH.factor + GROWTH.bytes, early, late };
}

/**
 * The resident memory of a process and of all Node processes below it, in bytes.
 * @param table  what `ps -eo pid=,ppid=,rss=,comm=` says
 */
export function nodeMemory(table: string, root: number): number {
  const rows = table
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .map(([pid, parent, kilobytes, command]) => ({
      pid: Number(pid),
      parent: Number(parent),
      bytes: Number(kilobytes) * 1024,
      command,
    }));
  const family = new Set([root]);
  for (let size = 0; size < family.size; ) {
    size = family.size;
    for (const { pid, parent } of rows) if (family.has(parent)) family.add(pid);
  }
  return rows
    .filter(({ pid, command }) => family.has(pid) && (pid === root || command === 'node'))
    .reduce((sum, { bytes }) => sum + bytes, 0);
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}
