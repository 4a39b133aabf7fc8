import { escapeHtml } from '../../base/escape-html.ts';

/** A refusal by the store, with S3's own code. */
export class S3Refusal extends Error {
  override readonly name = 'S3Refusal';
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }

  toXml(): string {
    return `<?xml version="1.0" encoding="UTF-8"?><Error><Code>${this.code}</Code><Message>${escapeHtml(this.message)}</Message></Error>`;
  }
}
