import type { Effects } from '../auth/effects.ts';
import type { Permission, Principal } from '../auth/permission.ts';
import type { StreamWatch } from '../live/stream.ts';
import type { Services } from '../services.ts';
import type { Fields, JsonSchema, Values } from './field.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';

/** One request, checked: what a route works with. */
export interface Call<P extends Fields = Fields, Q extends Fields = Fields, B extends Fields = Fields> {
  readonly params: Values<P>;
  readonly query: Values<Q>;
  readonly body: Values<B>;
  /** The bodies, where it was a list of them; `body` is then the first. */
  readonly list: readonly Values<B>[] | undefined;
  /** The body as it came, for what must be kept to the letter. */
  readonly text: string;
  readonly who: Principal;
  readonly request: Request;
  /** Looks. */
  readonly services: Services;
  /** Changes, each thing only if this caller may. */
  readonly effects: Effects;
  /** Answers with server-sent events, which end with what let the caller in. @throws HttpRefusal  too many are open */
  readonly stream: (watch: StreamWatch) => Response;
}

/** What one path and method do: the handler, the OpenAPI document and the audit are all made from this. */
export interface Route<P extends Fields = Fields, Q extends Fields = Fields, B extends Fields = Fields> {
  readonly method: Method;
  /** Under /api/v1, with parameters in braces. */
  readonly path: string;
  /** Names it in the document, and its client in generated code. */
  readonly id: string;
  readonly tag: string;
  readonly summary: string;
  /** Undefined: open to anybody, and neither limited nor audited. */
  readonly permission: Permission | undefined;
  readonly params?: P;
  readonly query?: Q;
  readonly body?: B;
  /** The body may be a list of such objects, too, of up to so many. */
  readonly list?: { readonly max: number };
  /** An Idempotency-Key is taken: what is asked for again with the same one is not done again. */
  readonly takesKey?: true;
  /** The body is bytes, which the route reads itself, as they come and as far as it lets them. */
  readonly takesBytes?: true;
  /** What comes back, as a JSON Schema or the name of one in schemas/; or bytes. */
  readonly answers: string | JsonSchema;
  readonly givesBytes?: true;
  /** What comes back are server-sent events. */
  readonly givesStream?: true;
  /** 200 unless it says else. */
  readonly status?: number;
  /** Other statuses of what was done, with the same answer. */
  readonly also?: readonly number[];
  /** What it was done to, for the audit; what changes something has it. */
  readonly target?: (call: {
    readonly params: Values<P>;
    readonly query: Values<Q>;
    readonly body: Values<B>;
  }) => string;
  /** Not audited, though it is no GET: it changes nothing that anybody would look for. */
  readonly isQuiet?: true;
  /**
   * Asked by many within this time, the database is asked once. Only for what is the same for all who have the permission, and for all
   * of them who may search by words.
   */
  readonly sharedMs?: number;
  readonly run: (call: Call<P, Q, B>) => unknown;
}

/** Any route, once its own types have been used to check what it does. */
export type AnyRoute = Route;

/** Declares a route, with its types. */
export function route<
  P extends Fields = Record<never, never>,
  Q extends Fields = Record<never, never>,
  B extends Fields = Record<never, never>,
>(declared: Route<P, Q, B>): AnyRoute {
  return declared as unknown as AnyRoute;
}

/** What is said about the parameter `after` of every list. */
export const AFTER = 'where the page before ended: its "after"';
