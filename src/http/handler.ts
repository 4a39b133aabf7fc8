import type { Peer } from './auth/peer.ts';

/** The HTTP API and the dashboard. Call it with a request, wherever that comes from. */
export interface HttpHandler {
  (request: Request, peer?: Peer): Promise<Response>;
  /** Under what it is mounted, without a slash at the end. */
  readonly basePath: string;
  /** Ends all streams; requests that are under way are finished, and bulk actions left to another process. Safe to call twice. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
