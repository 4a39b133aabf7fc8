/** How every side enqueues in bulk, unless a measurement says otherwise: jobs in one call, and calls under way at once. */
export const BULK = { batch: 1000, connections: 4 } as const;
