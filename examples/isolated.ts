import type { DevExample, Figures } from './dev-example.ts';

/** How many faults of one example are kept in words; the log has all of them. */
const KEPT = 20;

/**
 * An example whose faults stay its own. What it throws is a line of the log and makes its figures `ok: false`; it rests from
 * then on, and the other examples go on. No method of it rejects.
 */
export class IsolatedExample implements DevExample {
  readonly #example: DevExample;
  readonly #log: (line: string) => void;
  readonly #problems: string[] = [];
  #isStarted = false;

  constructor(example: DevExample, log: (line: string) => void) {
    this.#example = example;
    this.#log = log;
  }

  get name(): string {
    return this.#example.name;
  }

  async start(): Promise<void> {
    await this.#try('could not be started', async () => {
      await this.#example.start();
      this.#isStarted = true;
    });
  }

  async feed(signal: AbortSignal): Promise<void> {
    if (this.#isStarted) await this.#try('broke off', () => this.#example.feed(signal));
  }

  async finish(): Promise<Figures> {
    const figures = this.#isStarted ? await this.#try('could not be checked', () => this.#example.finish()) : undefined;
    if (this.#problems.length === 0 && figures !== undefined) return figures;
    return { ...figures, ok: false, problems: [...(figures?.problems ?? []), ...this.#problems] };
  }

  async stop(): Promise<void> {
    await this.#try('could not be stopped', () => this.#example.stop());
  }

  /** Notes something that this example did wrong. */
  note(what: string, error: unknown): void {
    const problem = `${this.name} ${what}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`;
    this.#log(`problem: ${problem}`);
    if (this.#problems.length < KEPT) this.#problems.push(problem);
  }

  async #try<T>(what: string, act: () => Promise<T>): Promise<T | undefined> {
    try {
      return await act();
    } catch (error) {
      this.note(what, error);
      return undefined;
    }
  }
}
