/** An answer of a route with a status or headers of its own. */
export class Reply {
  readonly value: unknown;
  readonly status: number | undefined;
  readonly headers: Readonly<Record<string, string>>;

  constructor(value: unknown, { status, headers = {} }: ReplyOptions) {
    this.value = value;
    this.status = status;
    this.headers = headers;
  }
}

/**
 * Whether a value is a Response. Not by `instanceof`: a program may have put another class in place of the global one.
 */
export function isResponse(value: unknown): value is Response {
  return Object.prototype.toString.call(value) === '[object Response]';
}

interface ReplyOptions {
  /** Default: the status of the route. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
}
