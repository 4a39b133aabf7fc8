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

interface ReplyOptions {
  /** Default: the status of the route. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
}
