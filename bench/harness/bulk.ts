/** How every side enqueues in bulk, unless a measurement says otherwise: the jobs of one call, and the calls under way at the same time. */
export const BULK = { batch: 1000, connections: 4 } as const;
