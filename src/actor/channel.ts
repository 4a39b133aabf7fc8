import { InvalidInput } from '../base/errors.ts';
import type { Severity } from './page.ts';

/** A notification of a page, as a channel gets it. */
export interface PageNotice {
  /** The same for every try to deliver it: receivers can tell repetitions by it. */
  readonly id: string;
  readonly kind: 'opened' | 'escalated' | 'resolved';
  readonly severity: Severity;
  readonly page: string;
  readonly tag: string;
  readonly root: string | null;
  readonly summary: string;
  readonly details: unknown;
  readonly actor: string | null;
  readonly openedAt: string;
  readonly count: number;
  /** Open pages about the same root that nobody is told of, since this one is. */
  readonly suppresses: number;
}

/** Where notifications of pages go. Delivery is at least once: what throws is tried again. */
export interface PageChannel {
  /** The same name is the same channel in every process. */
  readonly name: string;
  deliver(notice: PageNotice, signal: AbortSignal): Promise<void>;
}

/** Posts each notification as JSON; any answer of class 2 counts as taken. @throws InvalidInput  that is no URL */
export function webhook(
  url: string,
  options: { readonly name?: string; readonly headers?: Readonly<Record<string, string>> } = {},
): PageChannel {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new InvalidInput('webhook() takes an http or https URL', { field: 'url' });
  }
  return {
    name: options.name ?? `webhook ${new URL(url).host}`,
    deliver: async (notice, signal) => {
      const headers = { 'content-type': 'application/json', 'idempotency-key': notice.id, ...options.headers };
      const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(notice), signal });
      await response.body?.cancel();
      if (!response.ok) throw new Error(`the webhook answered ${response.status}`);
    },
  };
}

/** Writes each notification as a line, to stderr unless told otherwise. */
export function consoleChannel(
  write: (line: string) => void = (line) => void process.stderr.write(`${line}\n`),
): PageChannel {
  return {
    name: 'console',
    deliver: async ({ kind, severity, page, summary, tag, suppresses }) => {
      const others = suppresses === 0 ? '' : ` (and ${suppresses} more about the same)`;
      write(`page ${page} ${kind}, ${severity}: ${summary} [${tag}]${others}`);
    },
  };
}
