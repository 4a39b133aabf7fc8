import { HttpRefusal } from './failure.ts';
import type { HttpSettings } from './options.ts';
import type { Principal } from './permission.ts';

/** What a caller may see of payloads, fields and results. */
export class Redaction {
  readonly #keys: ReadonlySet<string>;
  readonly #own: HttpSettings['redact']['payload'];

  constructor({ keys, payload }: HttpSettings['redact']) {
    this.#keys = new Set(keys.map((key) => key.toLowerCase()));
    this.#own = payload;
  }

  /** False: everything may be shown to the letter. */
  get isNeeded(): boolean {
    return this.#keys.size > 0 || this.#own !== undefined;
  }

  /** Undefined for whoever may see none. */
  show(value: unknown, who: Principal, of: { readonly queue: string; readonly kind: string }): unknown {
    if (!who.permissions.has('payload:read')) return undefined;
    return this.#hide(this.#own === undefined ? value : this.#own(structuredClone(value), of));
  }

  #hide(value: unknown): unknown {
    if (this.#keys.size === 0 || typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) return value.map((item) => this.#hide(item));
    const hidden = Object.entries(value).map(([key, inner]) => [
      key,
      this.#keys.has(key.toLowerCase()) ? '[redacted]' : this.#hide(inner),
    ]);
    return Object.fromEntries(hidden);
  }
}

/** @throws HttpRefusal */
export function requirePayload(who: Principal): void {
  if (!who.permissions.has('payload:read'))
    throw new HttpRefusal('forbidden', 'this needs the permission payload:read');
}
