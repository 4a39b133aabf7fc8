import type { DevContext, DevExample, Figures } from '../dev-example.ts';
import type { LedgerOptions, LedgerResult } from './ledger.ts';
import { givenOrLocal } from './local.ts';

/** The ledger on the DynamoDB of LEDGER_ENDPOINT, or on DynamoDB Local, where that can run. */
export class LedgerDev implements DevExample {
  readonly name = 'ledger';
  readonly #context: DevContext;
  #run: Promise<LedgerResult | string> | undefined;

  constructor(context: DevContext) {
    this.#context = context;
  }

  async start(): Promise<void> {
    this.#run = this.#tryRun();
    // finish() tells how it ended.
    this.#run.catch(() => {});
  }

  async feed(): Promise<void> {}

  async finish(): Promise<Figures> {
    const result = await this.#run;
    if (result === undefined) return { ok: false };
    if (typeof result === 'string') return { ok: true, skipped: result };
    const { wrong, sums, moves, killed, isTotalRight } = result;
    return { ok: wrong === 0 && sums > 0 && moves > 0 && killed === 1 && isTotalRight, ...result };
  }

  async stop(): Promise<void> {
    await this.#run?.catch(() => {});
  }

  /** @returns why not, in words */
  async #tryRun(): Promise<LedgerResult | string> {
    if (this.#context.signal.aborted) return this.#skip('there is no time');
    const local = await givenOrLocal();
    if (typeof local === 'string') return this.#skip(local);
    try {
      // Otherwise AWS writes six lines about Node 20 into what a newcomer reads first.
      process.env['AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED'] ??= 'true';
      // Loaded now: it needs a package that Pawl itself does not.
      const { runLedger } = await import('./ledger.ts');
      this.#context.log('ledger: three processes move and sum money on DynamoDB; one of them will be killed');
      return await runLedger(local.endpoint, {
        ...this.#times(),
        log: (line) => this.#context.log(`ledger: ${line}`),
      });
    } catch (error) {
      if (!isMissing(error)) throw error;
      return this.#skip('the package @aws-sdk/client-dynamodb is not installed');
    } finally {
      await local.stop();
    }
  }

  /** A run that is short for all has no six seconds for this one. */
  #times(): Pick<LedgerOptions, 'unlockedMs' | 'lockedMs'> {
    const { exitAfterMs } = this.#context;
    if (exitAfterMs === undefined) return {};
    return { unlockedMs: Math.min(2000, exitAfterMs / 4), lockedMs: Math.min(4000, exitAfterMs / 2) };
  }

  #skip(why: string): string {
    this.#context.log(`ledger: left out, as ${why}`);
    return why;
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ERR_MODULE_NOT_FOUND';
}
