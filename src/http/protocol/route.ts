import type { Effects } from '../auth/effects.ts';
import type { Permission, Principal } from '../auth/permission.ts';
import type { StreamWatch } from '../live/stream.ts';
import type { Services } from '../services.ts';
import type { Fields, JsonSchema, Values } from './field.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';

/** One checked request: the argument of a route. */
export interface Call<P extends Fields = Fields, Q extends Fields = Fields, B extends Fields = Fields> {
  readonly params: Values<P>;
  readonly query: Values<Q>;
  readonly body: Values<B>;
  /** The bodies, if the request has a list of them; `body` is then the first. */
  readonly list: readonly Values<B>[] | undefined;
  /** The body as it arrived, for values that must be kept unchanged. */
  readonly text: string;
  readonly who: Principal;
  readonly request: Request;
  /** For reading. */
  readonly services: Services;
  /** For changes, each only if this caller may make it. */
  readonly effects: Effects;
  /** Answers with server-sent events, which end with the caller's permission. @throws HttpRefusal  too many are open */
  readonly stream: (watch: StreamWatch) => Response;
}

/** One path and method. The handler, the OpenAPI document and the audit are all made from it. */
export interface Route<P extends Fields = Fields, Q extends Fields = Fields, B extends Fields = Fields> {
  readonly method: Method;
  /** Under /api/v1, with parameters in braces. */
  readonly path: string;
  /** The name in the document, and of its method in generated code. */
  readonly id: string;
  readonly tag: string;
  readonly summary: string;
  /** Undefined: every caller may use the route, and it is neither limited nor audited. */
  readonly permission: Permission | undefined;
  readonly params?: P;
  readonly query?: Q;
  readonly body?: B;
  /** The body may also be a list of such objects, up to this number. */
  readonly list?: { readonly max: number };
  /** The route accepts an Idempotency-Key: a repeated request with the same key is not carried out again. */
  readonly takesKey?: true;
  /** The body is bytes, which the route reads itself while they arrive, and as far as it accepts them. */
  readonly takesBytes?: true;
  /** The answer, as a JSON Schema or the name of one in schemas/; or bytes. */
  readonly answers: string | JsonSchema;
  readonly givesBytes?: true;
  /** The answer is a stream of server-sent events. */
  readonly givesStream?: true;
  /** Default 200. */
  readonly status?: number;
  /** Other statuses of success, with the same answer. */
  readonly also?: readonly number[];
  /** The subject of the change, for the audit; a route that changes something has it. */
  readonly target?: (call: {
    readonly params: Values<P>;
    readonly query: Values<Q>;
    readonly body: Values<B>;
  }) => string;
  /** The route is not audited, although it is no GET: it changes nothing of interest. */
  readonly isQuiet?: true;
  /** Callers repeat the request all the time, so one row in the audit stands for all of an hour. */
  readonly isFrequent?: true;
  /**
   * If many callers send the request within this time, the database is asked once. Only for answers that are the same for all
   * callers with the permission, and for all of them that may search by words.
   */
  readonly sharedMs?: number;
  readonly run: (call: Call<P, Q, B>) => unknown;
}

/** Any route, once its own types have been used to check its function. */
export type AnyRoute = Route;

/** Declares a route, with its types. */
export function route<
  P extends Fields = Record<never, never>,
  Q extends Fields = Record<never, never>,
  B extends Fields = Record<never, never>,
>(declared: Route<P, Q, B>): AnyRoute {
  return declared as unknown as AnyRoute;
}

/** The description of the parameter `after` of every list. */
export const AFTER = 'where the page before ended: its "after"';
