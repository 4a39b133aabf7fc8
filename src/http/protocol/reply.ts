/** What a route answers, where that has a status or headers of its own. */
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
  /** That of the route unless it says else. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
}
