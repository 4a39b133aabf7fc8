import { InvalidInput } from '../../base/errors.ts';
import { harmless } from '../../base/logger.ts';
import { checkOptions, optional, record, text } from '../../base/options/options.ts';
import type { Severity } from './page.ts';

/** The argument of a channel: a notification of a page. */
export interface PageNotice {
  /** The same for every try to deliver it, so that receivers can recognise repetitions. */
  readonly id: string;
  readonly kind: 'opened' | 'escalated' | 'resolved';
  readonly severity: Severity;
  readonly page: string;
  readonly tag: string;
  readonly root: string | null;
  readonly summary: string;
  readonly details: unknown;
  readonly actor: string | null;
  readonly openedAt: Date;
  readonly count: number;
  /** The number of open pages about the same root that are not delivered because this one is. */
  readonly suppresses: number;
}

/**
 * A receiver of notifications of pages. Delivery is at least once: if the channel throws, or takes longer than 15 s, delivery is
 * tried again. Other channels do not wait for it.
 */
export interface PageChannel {
  /** The same name is the same channel in every process. All channels of a dispatcher have different names. */
  readonly name: string;
  deliver(notice: PageNotice, signal: AbortSignal): Promise<void>;
}

export interface WebhookOptions {
  /** Default: `webhook` and the host of the URL. Two webhooks on one host need names. */
  readonly name?: string | undefined;
  /** Headers of each request. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

const webhookShape = {
  name: optional(text({ min: 1, max: 200 })),
  headers: record(text({ secret: true }), { default: {} }),
};

/** Posts each notification as JSON. Any answer of class 2 counts as accepted. @throws InvalidInput  the value is no URL */
export function webhook(url: string, options: WebhookOptions = {}): PageChannel {
  const { name, headers: added } = checkOptions('webhook', options, webhookShape);
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new InvalidInput('webhook() takes an http or https URL', { field: 'url' });
  }
  return {
    name: name ?? `webhook ${new URL(url).host}`,
    deliver: async (notice, signal) => {
      const headers = { 'content-type': 'application/json', 'idempotency-key': notice.id, ...added };
      const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(notice), signal });
      await response.body?.cancel();
      if (!response.ok) throw new Error(`the webhook answered ${response.status}`);
    },
  };
}

/** Writes each notification as a line, by default to stderr. */
export function consoleChannel(
  write: (line: string) => void = (line) => void process.stderr.write(`${harmless(line)}\n`),
): PageChannel {
  return {
    name: 'console',
    deliver: async ({ kind, severity, page, summary, tag, suppresses }) => {
      const others = suppresses === 0 ? '' : ` (and ${suppresses} more about the same)`;
      write(`page ${page} ${kind}, ${severity}: ${summary} [${tag}]${others}`);
    },
  };
}
