/** For tests that are not about permissions: every caller from this machine may do everything. */
export const OPEN_DOOR = { dangerouslyTrustLoopback: 'admin' } as const;
