import type { DevContext, DevExample, Figures } from './dev-example.ts';
import { IsolatedExample } from './isolated.ts';

export type { DevContext, DevExample, Figures } from './dev-example.ts';

/** The figures of the main example, and those of each other one under its name. */
export type DevSummary = Figures;

/** The first is the main one. Loaded when needed. */
const EXAMPLES: readonly ((context: DevContext) => Promise<DevExample>)[] = [
  async (context) => (await import('./spreadsheets/dev.ts')).SpreadsheetsDev.onPostgres(context),
  async (context) => new (await import('./nightly/dev.ts')).NightlyDev(context),
  async (context) => new (await import('./ledger/dev.ts')).LedgerDev(context),
  async (context) => new (await import('./cloud/dev.ts')).CloudDev(context),
  async (context) => new (await import('./documents/dev.ts')).DocumentsDev(context),
  async (context) => new (await import('./orders/dev.ts')).OrdersDev(context),
];

/**
 * Runs the examples side by side on one database: starts them, feeds them until the time is over or the signal aborts,
 * waits for what was asked for, and checks it. An example that throws is not ok, and the others go on. Nothing that was
 * started is left when it resolves.
 */
export async function runDev(context: DevContext): Promise<DevSummary> {
  const made = await Promise.all(EXAMPLES.map((make) => make(context)));
  return runExamples(made, context);
}

/** The first example is the main one: its figures stand next to the names of the others. */
export async function runExamples(
  made: readonly DevExample[],
  context: Pick<DevContext, 'exitAfterMs' | 'signal' | 'log'>,
): Promise<DevSummary> {
  const stray: string[] = [];
  const forget = catchStray((what) => {
    context.log(`problem: ${what}`);
    if (stray.length < 20) stray.push(what);
  });
  const examples = made.map((example) => new IsolatedExample(example, (line) => context.log(line)));
  try {
    await Promise.all(examples.map((example) => example.start()));
    await feed(examples, context);
    const figures = await Promise.all(examples.map((example) => example.finish()));
    const summary = merge(examples, figures);
    return stray.length === 0 ? summary : { ...summary, ok: false, stray };
  } finally {
    await Promise.all(examples.map((example) => example.stop()));
    forget();
  }
}

/** An error that an example throws outside of any awaited call would end the process, and all other examples with it. */
function catchStray(tell: (what: string) => void): () => void {
  const hear = (error: unknown): void =>
    tell(
      `thrown outside of any awaited call: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`,
    );
  process.on('uncaughtException', hear);
  process.on('unhandledRejection', hear);
  return () => {
    process.off('uncaughtException', hear);
    process.off('unhandledRejection', hear);
  };
}

async function feed(
  examples: readonly DevExample[],
  { exitAfterMs, signal }: Pick<DevContext, 'exitAfterMs' | 'signal'>,
): Promise<void> {
  const ending = new AbortController();
  const end = (): void => ending.abort();
  signal.addEventListener('abort', end, { once: true });
  const timer = exitAfterMs === undefined ? undefined : setTimeout(end, exitAfterMs);
  if (signal.aborted) end();
  try {
    await Promise.all(examples.map((example) => example.feed(ending.signal)));
    // Those that have nothing more to do, and those that broke off, do not end the run.
    await aborted(ending.signal);
  } finally {
    end();
    clearTimeout(timer);
    signal.removeEventListener('abort', end);
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

function merge(examples: readonly DevExample[], figures: readonly Figures[]): DevSummary {
  const [main = { ok: true }, ...others] = figures;
  const rest = others.map((figure, index) => [examples[index + 1]?.name ?? '', figure]);
  return { ...main, ok: figures.every(({ ok }) => ok), ...Object.fromEntries(rest) };
}
