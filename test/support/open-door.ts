/** For tests about something else than who gets in: whoever asks from this machine may do everything. */
export const OPEN_DOOR = { dangerouslyTrustLoopback: 'admin' } as const;
