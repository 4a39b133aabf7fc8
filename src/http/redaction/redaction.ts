import type { Logger } from '../../base/logger.ts';
import type { Permission, Principal } from '../auth/permission.ts';
import type { HttpSettings } from '../options.ts';
import { HttpRefusal } from '../protocol/failure.ts';
import { HIDDEN, Hidden, type HiddenKind, type ValueOrigin } from './hidden.ts';
import { TextKeys } from './hide-in-text.ts';
import { hideKeys } from './hide-keys.ts';
import { PropertyBudget, TooLarge } from './property-budget.ts';
import { writeJson } from './write-json.ts';

/** Replaces a value that is too large for redaction. */
export const TOO_LARGE = '[too large to be shown on a server that hides values]';
/**
 * The most properties that are checked for one answer. That takes 25 ms, about as long as parsing them: redaction runs on the
 * thread that answers all requests, and a large value must not block it.
 */
const MOST_PROPERTIES = 200_000;
/** The user's own rule gets a copy, and copying a property takes four times as long as checking it. */
const MOST_COPIED = MOST_PROPERTIES / 4;
/** The number of characters of a text that take as long as one property. */
const CHARACTERS_PER_PROPERTY = 16;
const NO_KEYS: ReadonlySet<string> = new Set();
const TELL_MS = 60_000;

const NEEDS: Readonly<Record<HiddenKind, Permission>> = {
  payload: 'payload:read',
  text: 'error:read',
  words: 'payload:read',
};

/**
 * The only writer of values that users' programs stored: it knows which caller may see which values, and which are hidden from
 * all.
 */
export class Redaction {
  readonly #keys: ReadonlySet<string>;
  readonly #inText: TextKeys | undefined;
  readonly #options: HttpSettings['redact'];
  readonly #logger: Logger;
  #toldAt = -Infinity;

  constructor(options: HttpSettings['redact'], logger: Logger) {
    this.#options = options;
    this.#logger = logger;
    this.#keys = new Set(options.keys.map((key) => key.toLowerCase()));
    this.#inText = options.keys.length === 0 ? undefined : new TextKeys(options.keys);
  }

  /** False: callers with the permission see every value unchanged. */
  get isNeeded(): boolean {
    return this.#keys.size > 0 || this.#options.payload !== undefined || this.#options.error !== undefined;
  }

  /** An answer as JSON, with each hidden value in the form that this caller may see. */
  write(answer: unknown, who: Principal): string {
    const budget = this.#budget();
    return Hidden.showing(
      (hidden, value) => this.#show(hidden, value, who, budget),
      () => writeJson(answer),
    );
  }

  /** A single payload, for a caller that may see it. */
  payload(value: unknown, of: ValueOrigin): unknown {
    return this.#payload(value, of, this.#budget());
  }

  /**
   * A search by words can find out payloads and errors letter by letter, so its caller must be allowed to see all of them.
   * @throws HttpRefusal  forbidden
   */
  requireSearch(who: Principal): void {
    for (const permission of ['payload:read', 'error:read'] as const) needs(who, permission);
    if (!this.maySearch(who))
      throw new HttpRefusal(
        'forbidden',
        'this server hides values, so they cannot be searched for words; filters by name do, such as status:error key:ada',
      );
  }

  /** The same, for searches that also find words in other places. */
  maySearch({ permissions }: Principal): boolean {
    const mayRead = permissions.has('payload:read') && permissions.has('error:read');
    return mayRead && (!this.isNeeded || this.#options.search);
  }

  #budget(): PropertyBudget {
    return new PropertyBudget(this.#options.payload === undefined ? MOST_PROPERTIES : MOST_COPIED);
  }

  #show(hidden: Hidden, value: unknown, who: Principal, budget: PropertyBudget): unknown {
    if (value === undefined || value === null) return value;
    if (!who.permissions.has(NEEDS[hidden.kind])) return hidden.instead;
    if (hidden.kind === 'words') return value;
    if (hidden.kind === 'payload') return this.#payload(value, hidden.of, budget);
    return typeof value === 'string' ? this.#text(value, hidden, budget) : hidden.instead;
  }

  #payload(value: unknown, of: ValueOrigin, budget: PropertyBudget): unknown {
    const { payload: own } = this.#options;
    return unlessTooLarge(() => {
      if (own === undefined) return this.#hideKeys(value, budget);
      hideKeys(value, NO_KEYS, budget); // throws if the value is too large to be copied
      const shown = this.#safely(() => own(structuredClone(value), of));
      return this.#hideKeys(shown, budget);
    });
  }

  #hideKeys(value: unknown, budget: PropertyBudget): unknown {
    return this.#keys.size === 0 ? value : hideKeys(value, this.#keys, budget);
  }

  /** A rule of the user's own does not handle texts. */
  #text(text: string, { of, instead }: Hidden, budget: PropertyBudget): unknown {
    const { payload: own, error: ownOfErrors } = this.#options;
    if (ownOfErrors !== undefined) return this.#safely(() => String(ownOfErrors(text, of)));
    if (own !== undefined) return instead;
    const keys = this.#inText;
    if (keys === undefined) return text;
    return unlessTooLarge(() => {
      budget.spend(text.length / CHARACTERS_PER_PROPERTY);
      return keys.hide(text);
    });
  }

  /** A value that the user's own rule fails on is not shown. */
  #safely(judge: () => unknown): unknown {
    try {
      return judge();
    } catch (error) {
      this.#tell(error);
      return HIDDEN;
    }
  }

  /** Once a minute: an answer may have a thousand such values. */
  #tell(error: unknown): void {
    if (performance.now() - this.#toldAt < TELL_MS) return;
    this.#toldAt = performance.now();
    this.#logger.warn({ err: error }, 'http: a function of redact failed, so the value that it got is hidden');
  }
}

function unlessTooLarge(show: () => unknown): unknown {
  try {
    return show();
  } catch (error) {
    if (error instanceof TooLarge) return TOO_LARGE;
    throw error;
  }
}

/** @throws HttpRefusal  forbidden */
export function needs(who: Principal, permission: Permission): void {
  if (!who.permissions.has(permission)) throw new HttpRefusal('forbidden', `this needs the permission ${permission}`);
}
