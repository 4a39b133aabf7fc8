/** Works on all of them, so many at a time, in any order. What `work` throws ends it, once those under way are done. */
export async function inLanes<T>(all: readonly T[], lanes: number, work: (one: T) => Promise<void>): Promise<void> {
  const rest = [...all];
  const lane = async (): Promise<void> => {
    for (let one = rest.pop(); one !== undefined; one = rest.pop()) await work(one);
  };
  const ended = await Promise.allSettled(Array.from({ length: Math.min(lanes, all.length) }, lane));
  for (const each of ended) if (each.status === 'rejected') throw each.reason;
}
