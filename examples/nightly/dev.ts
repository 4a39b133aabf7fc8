import type { DevContext, DevExample, Figures } from '../dev-example.ts';
import { type NightlyResult, runNightly } from './nightly.ts';

/** One night, a moment after everything else has started: four processes, one of them killed half-way. */
export class NightlyDev implements DevExample {
  readonly name = 'nightly';
  readonly #context: DevContext;
  #night: Promise<NightlyResult> | undefined;

  constructor(context: DevContext) {
    this.#context = context;
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

  async feed(): Promise<void> {}

  async finish(): Promise<Figures> {
    const night = await this.#night;
    if (night === undefined) return { ok: false };
    const { runs, billed, billedTwice } = night;
    this.#context.log(`nightly: ${runs} report, ${billed} teams billed, ${billedTwice} of them twice`);
    return { ok: runs === 1 && billedTwice === 0 && billed === 60, ...night };
  }

  async stop(): Promise<void> {
    await this.#night?.catch(() => {});
  }
}
