import type { DevContext, DevExample, Figures } from './dev-example.ts';
import { type NeedsPackages, needsPackages } from './packages.ts';

export type { DevContext, DevExample, Figures } from './dev-example.ts';

/** The figures of the main example, and those of each other one under its name. */
export type DevSummary = Figures;

/** The first is the main one. Loaded when needed: what they are made with is no dependency of the library. */
const EXAMPLES: readonly ((context: DevContext) => Promise<DevExample>)[] = [
  async (context) => new (await import('./spreadsheets/dev.ts')).SpreadsheetsDev(context),
  async (context) => new (await import('./nightly/dev.ts')).NightlyDev(context),
  async (context) => new (await import('./ledger/dev.ts')).LedgerDev(context),
  async (context) => new (await import('./cloud/dev.ts')).CloudDev(context),
  async (context) => new (await import('./documents/dev.ts')).DocumentsDev(context),
  async (context) => new (await import('./orders/dev.ts')).OrdersDev(context),
];

/**
 * Runs the examples side by side on one database: starts them, feeds them until the time is over or the signal aborts,
 * waits for what was asked for, and checks it. Nothing that was started is left when it resolves.
 */
export async function runDev(context: DevContext): Promise<DevSummary> {
  const examples = await Promise.all(EXAMPLES.map((make) => make(context))).catch(withAdvice);
  try {
    await Promise.all(examples.map((example) => example.start()));
    await feed(examples, context);
    const figures = await Promise.all(examples.map((example) => example.finish()));
    return merge(examples, figures);
  } finally {
    await Promise.all(examples.map((example) => example.stop()));
  }
}

async function feed(examples: readonly DevExample[], { exitAfterMs, signal }: DevContext): Promise<void> {
  const ending = new AbortController();
  const end = (): void => ending.abort();
  signal.addEventListener('abort', end, { once: true });
  const timer = exitAfterMs === undefined ? undefined : setTimeout(end, exitAfterMs);
  if (signal.aborted) end();
  try {
    await Promise.all(examples.map((example) => example.feed(ending.signal)));
  } finally {
    end();
    clearTimeout(timer);
    signal.removeEventListener('abort', end);
  }
}

function merge(examples: readonly DevExample[], figures: readonly Figures[]): DevSummary {
  const [main = { ok: true }, ...others] = figures;
  const rest = others.map((figure, index) => [examples[index + 1]?.name ?? '', figure]);
  return { ...main, ok: figures.every(({ ok }) => ok), ...Object.fromEntries(rest) };
}

function withAdvice(error: unknown): never {
  const needs: NeedsPackages | undefined = needsPackages(error);
  throw needs ?? error;
}
