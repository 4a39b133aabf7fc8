import type { Logger } from '../../base/logger.ts';
import type { Permission, Principal } from '../auth/permission.ts';
import type { HttpSettings } from '../options.ts';
import { HttpRefusal } from '../protocol/failure.ts';
import { DEEPEST } from './depth.ts';
import { HIDDEN, Hidden, type HiddenKind, type Origin } from './hidden.ts';
import { writeJson } from './write-json.ts';

const REDACTED = '[redacted]';
const TELL_MS = 60_000;

const NEEDS: Readonly<Record<HiddenKind, Permission>> = {
  payload: 'payload:read',
  text: 'error:read',
  words: 'payload:read',
};

/** The one door through which what users' programs wrote gets out: it knows who may see what, and what nobody may. */
export class Redaction {
  readonly #keys: ReadonlySet<string>;
  readonly #inText: RegExp | undefined;
  readonly #options: HttpSettings['redact'];
  readonly #logger: Logger;
  #toldAt = -Infinity;

  constructor(options: HttpSettings['redact'], logger: Logger) {
    this.#options = options;
    this.#logger = logger;
    this.#keys = new Set(options.keys.map((key) => key.toLowerCase()));
    this.#inText = inTextOf(options.keys);
  }

  /** False: everything may be shown to the letter to whoever has the permission. */
  get isNeeded(): boolean {
    return this.#keys.size > 0 || this.#options.payload !== undefined || this.#options.error !== undefined;
  }

  /** An answer as JSON, with everything in it that is hidden as this caller may see it. */
  write(answer: unknown, who: Principal): string {
    return Hidden.showing(
      (hidden, value) => this.#show(hidden, value, who),
      () => writeJson(answer),
    );
  }

  /** One payload by itself, for whoever may see it. */
  payload(value: unknown, of: Origin): unknown {
    const { payload: own } = this.#options;
    return this.#hide(own === undefined ? value : this.#safely(() => own(structuredClone(value), of)), 0);
  }

  /**
   * Whoever searches by words learns letter by letter what stands in payloads and errors, so he must be allowed to see all of them.
   * @throws HttpRefusal  forbidden
   */
  requireSearch(who: Principal): void {
    for (const permission of ['payload:read', 'error:read'] as const) needs(who, permission);
    if (!this.maySearch(who))
      throw new HttpRefusal(
        'forbidden',
        'this server hides values, so nobody searches for words in them; filters by name do, such as status:error key:ada',
      );
  }

  /** The same, where words have other things to be found in, too. */
  maySearch({ permissions }: Principal): boolean {
    const mayRead = permissions.has('payload:read') && permissions.has('error:read');
    return mayRead && (!this.isNeeded || this.#options.search);
  }

  #show(hidden: Hidden, value: unknown, who: Principal): unknown {
    if (value === undefined || value === null) return value;
    if (!who.permissions.has(NEEDS[hidden.kind])) return hidden.instead;
    if (hidden.kind === 'words') return value;
    if (hidden.kind === 'payload') return this.payload(value, hidden.of);
    return typeof value === 'string' ? this.#text(value, hidden) : hidden.instead;
  }

  /** Values under hidden keys as they stand in texts: `"key": "value"`, `key=value`. A rule of one's own knows no texts. */
  #text(text: string, { of, instead }: Hidden): unknown {
    const { payload: own, error: ownOfErrors } = this.#options;
    if (ownOfErrors !== undefined) return this.#safely(() => String(ownOfErrors(text, of)));
    if (own !== undefined) return instead;
    return this.#inText === undefined ? text : text.replaceAll(this.#inText, `$1${REDACTED}`);
  }

  /** What a rule of the user's own cannot judge is not shown. */
  #safely(judge: () => unknown): unknown {
    try {
      return judge();
    } catch (error) {
      this.#tell(error);
      return HIDDEN;
    }
  }

  /** Once a minute: an answer may hold a thousand such values. */
  #tell(error: unknown): void {
    if (performance.now() - this.#toldAt < TELL_MS) return;
    this.#toldAt = performance.now();
    this.#logger.warn({ err: error }, 'http: a function of redact failed, so that what it was given is not shown');
  }

  /** Copies what has something to hide and nothing else: it is done for each request, on the thread that answers all of them. */
  #hide(value: unknown, depth: number): unknown {
    if (this.#keys.size === 0 || typeof value !== 'object' || value === null) return value;
    if (depth > DEEPEST) return REDACTED;
    if (Array.isArray(value)) {
      const items = value.map((item) => this.#hide(item, depth + 1));
      return items.some((item, index) => item !== value[index]) ? items : value;
    }
    let isSame = true;
    const shown = Object.keys(value).map((key): [string, unknown] => {
      const inner: unknown = Reflect.get(value, key);
      const seen = this.#keys.has(key.toLowerCase()) ? REDACTED : this.#hide(inner, depth + 1);
      isSame &&= seen === inner;
      return [key, seen];
    });
    return isSame ? value : Object.fromEntries(shown);
  }
}

/** @throws HttpRefusal  forbidden */
export function needs(who: Principal, permission: Permission): void {
  if (!who.permissions.has(permission)) throw new HttpRefusal('forbidden', `this needs the permission ${permission}`);
}

function inTextOf(keys: readonly string[]): RegExp | undefined {
  if (keys.length === 0) return undefined;
  const names = keys.map((key) => key.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|');
  const value = String.raw`"(?:[^"\\]|\\[^])*"?|'(?:[^'\\]|\\[^])*'?|[^\s,;&}\]]+`;
  return new RegExp(String.raw`((?<![\w-])(?:${names})(?![\w-])\\?["']?\s*(?:=>|[:=])\s*)(?:${value})`, 'giu');
}
