import { statement } from 'pawl/postgres';
import { createQueue, type Queue, type Worker } from 'pawl/queue';
import type { DevContext, DevExample, Figures } from '../dev-example.ts';
import { type NightlyResult, runNightly } from './nightly.ts';

const INVOICES = statement('nightly.invoices', 'select count(*)::int as invoices from nightly_invoice');

type NightlyKinds = { readonly count: object };

/**
 * One night, a moment after everything else has started: four processes, one of them killed half-way. And a schedule, so
 * that there is one: each minute somebody counts the invoices.
 */
export class NightlyDev implements DevExample {
  readonly name = 'nightly';
  readonly #context: DevContext;
  readonly #counting: Queue<NightlyKinds>;
  #night: Promise<NightlyResult> | undefined;
  #counter: Worker | undefined;

  constructor(context: DevContext) {
    this.#context = context;
    this.#counting = createQueue(context.engine, 'nightly', { kinds: { count: {} } });
  }

  async start(): Promise<void> {
    this.#context.log('nightly: four processes make one daily report and bill 60 teams; one of them will be killed');
    this.#night = runNightly(this.#context.url, {
      log: (line) => {
        if (line.endsWith('is killed')) this.#context.log(`nightly: ${line}`);
      },
    });
    // finish() tells how it ended.
    this.#night.catch(() => {});
  }

  async feed(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    await this.#counting.schedule('count-invoices', { cron: '* * * * *', timezone: 'Europe/Berlin', kind: 'count' });
    const { engine } = this.#context;
    this.#counter = this.#counting.work({ count: async () => (await engine.query(INVOICES))[0] }, { concurrency: 1 });
    this.#context.show?.({ queues: [this.#counting] });
  }

  async finish(): Promise<Figures> {
    const night = await this.#night;
    if (night === undefined) return { ok: false };
    const { runs, billed, billedTwice } = night;
    this.#context.log(`nightly: ${runs} report, ${billed} teams billed, ${billedTwice} of them twice`);
    return { ok: runs === 1 && billedTwice === 0 && billed === 60, ...night };
  }

  async stop(): Promise<void> {
    await this.#counter?.stop({ timeout: 1000 });
    await this.#night?.catch(() => {});
  }
}
