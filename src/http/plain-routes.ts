import type { Peer } from './auth/peer.ts';
import type { Permission, Principal } from './auth/permission.ts';

/** A request to a plain route. */
export interface PlainCall {
  readonly request: Request;
  readonly peer: Peer;
}

interface GuardedRoute {
  readonly method: 'GET';
  /** Below the base path. */
  readonly path: string;
  readonly permission: Permission;
  readonly run: (work: PlainWork, call: PlainCall, who: Principal) => Response | Promise<Response>;
}

interface OpenRoute {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  /** Undefined: every caller may use the route. */
  readonly permission: undefined;
  readonly run: (work: PlainWork, call: PlainCall) => Response | Promise<Response>;
}

export type PlainRoute = GuardedRoute | OpenRoute;

/** The work of the plain routes. */
export interface PlainWork {
  ready(): Promise<Response>;
  metrics(): Promise<Response>;
  describe(): Response;
  events(call: PlainCall, who: Principal): Response;
  waysToLogIn(): Response;
  logIn(call: PlainCall): Promise<Response>;
  logOut(call: PlainCall): Promise<Response>;
}

/**
 * Routes that the OpenAPI document does not name: for monitors, for the document itself, for the dashboard's stream, and to log
 * in.
 */
export const PLAIN_ROUTES: readonly PlainRoute[] = [
  { method: 'GET', path: '/healthz', permission: undefined, run: () => Response.json({ status: 'ok' }) },
  { method: 'GET', path: '/readyz', permission: undefined, run: (work) => work.ready() },
  { method: 'GET', path: '/metrics', permission: 'metrics:read', run: (work) => work.metrics() },
  { method: 'GET', path: '/api/v1/openapi.json', permission: 'view', run: (work) => work.describe() },
  { method: 'GET', path: '/api/v1/events', permission: 'view', run: (work, call, who) => work.events(call, who) },
  { method: 'GET', path: '/api/v1/login', permission: undefined, run: (work) => work.waysToLogIn() },
  { method: 'POST', path: '/api/v1/login', permission: undefined, run: (work, call) => work.logIn(call) },
  { method: 'POST', path: '/api/v1/logout', permission: undefined, run: (work, call) => work.logOut(call) },
];
