/** An answer of the store that says no, with S3's own code. */
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
    return `<?xml version="1.0" encoding="UTF-8"?><Error><Code>${this.code}</Code><Message>${escapeXml(this.message)}</Message></Error>`;
  }
}

export function escapeXml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
