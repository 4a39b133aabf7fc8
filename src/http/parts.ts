/** Parts that have pages of their own. */
export const PARTS = { queues: true, locks: true, actors: true, captures: true, files: true } as const;
