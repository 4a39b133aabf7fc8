/** What a message begins with: its kind, as Postgres calls it. */
const PARSE = 0x50;
const BIND = 0x42;
const EXECUTE = 0x45;
const SYNC = 0x53;

/** The length of a value that is null. */
const NULL = -1;

/**
 * Messages of the extended protocol, one after another in one buffer: written at once, they cost half of what as many
 * small buffers cost.
 */
export class Messages {
  #buffer: Buffer = Buffer.allocUnsafe(2048);
  #length = 0;

  parse(name: string, text: string): void {
    const start = this.#begin(PARSE);
    this.#string(name);
    this.#string(text);
    this.#int16(0);
    this.#end(start);
  }

  /** Values and results as text. */
  bind(name: string, values: readonly (string | number | null)[]): void {
    const start = this.#begin(BIND);
    this.#string('');
    this.#string(name);
    this.#int16(0);
    this.#int16(values.length);
    for (const value of values) {
      if (value === null) this.#int32(NULL);
      else {
        const at = this.#length;
        this.#int32(0);
        this.#text(String(value));
        this.#buffer.writeInt32BE(this.#length - at - 4, at);
      }
    }
    this.#int16(0);
    this.#end(start);
  }

  execute(): void {
    const start = this.#begin(EXECUTE);
    this.#string('');
    this.#int32(0);
    this.#end(start);
  }

  sync(): void {
    this.#end(this.#begin(SYNC));
  }

  /** Everything since the last call, as bytes of the caller's own. */
  take(): Buffer {
    const bytes = Buffer.from(this.#buffer.subarray(0, this.#length));
    this.#length = 0;
    return bytes;
  }

  #begin(kind: number): number {
    this.#reserve(5);
    this.#buffer[this.#length] = kind;
    this.#length += 5;
    return this.#length - 4;
  }

  /** The length counts itself. */
  #end(start: number): void {
    this.#buffer.writeInt32BE(this.#length - start, start);
  }

  #string(text: string): void {
    this.#text(text);
    this.#reserve(1);
    this.#buffer[this.#length] = 0;
    this.#length += 1;
  }

  #text(text: string): void {
    // No character takes more than three bytes for each of its units.
    this.#reserve(text.length * 3);
    const buffer = this.#buffer;
    const start = this.#length;
    // Most are short and plain: a call into the runtime for each costs more than they do.
    for (let at = 0; at < text.length; at += 1) {
      const code = text.charCodeAt(at);
      if (code > 0x7f || at > 64) {
        this.#length = start + buffer.write(text, start);
        return;
      }
      buffer[start + at] = code;
    }
    this.#length = start + text.length;
  }

  #int16(value: number): void {
    this.#reserve(2);
    this.#length = this.#buffer.writeInt16BE(value, this.#length);
  }

  #int32(value: number): void {
    this.#reserve(4);
    this.#length = this.#buffer.writeInt32BE(value, this.#length);
  }

  #reserve(bytes: number): void {
    const needed = this.#length + bytes;
    if (needed <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafe(Math.max(needed, this.#buffer.length * 2));
    this.#buffer.copy(larger, 0, 0, this.#length);
    this.#buffer = larger;
  }
}
