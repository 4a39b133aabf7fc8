/** A request that is answered with an error: which status, a stable code for programs, a message for people. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly status: 400 | 401 | 404 | 413 | 415 | 503;
  readonly code: string;
  readonly field: string | undefined;

  constructor(status: Refusal['status'], code: string, message: string, field?: string) {
    super(message);
    this.status = status;
    this.code = code;
    this.field = field;
  }

  /** `{"error":{"code":"bad_body","field":"rows.3.0","message":"…"}}` */
  get body(): { readonly error: { readonly code: string; readonly field?: string; readonly message: string } } {
    const { code, field, message } = this;
    return { error: field === undefined ? { code, message } : { code, field, message } };
  }
}
