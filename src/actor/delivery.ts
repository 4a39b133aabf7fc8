import { type Backoff, delay } from '../base/backoff.ts';
import { type Loop, startLoop } from '../base/loop.ts';
import type { PageChannel } from './channel.ts';
import type { Notice, PostgresActorReader } from './postgres-read.ts';

const POLL_MS = 5000;
const AT_ONCE = 20;
/** Below the 30 s after which another process may try. */
const TIMEOUT_MS = 15_000;
const BACKOFF: Backoff = { kind: 'exponential', min: 1000, max: 600_000, factor: 2, jitter: 0.5 };

/** Delivers notifications of pages from the outbox, each to every channel, until all have taken it. */
export class Delivery {
  readonly #reader: PostgresActorReader;
  readonly #channels: readonly PageChannel[];
  readonly #loop: Loop;

  constructor(reader: PostgresActorReader, channels: readonly PageChannel[], onError: (error: unknown) => void) {
    this.#reader = reader;
    this.#channels = channels;
    this.#loop = startLoop({ name: 'actor.pages', run: (signal) => this.#deliverAll(signal), onError, unref: true });
  }

  wake(): void {
    this.#loop.wake();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #deliverAll(stop: AbortSignal): Promise<number> {
    const notices = await this.#reader.takeNotices(AT_ONCE);
    await Promise.all(notices.map((notice) => this.#deliver(notice, stop)));
    return notices.length < AT_ONCE ? POLL_MS : 0;
  }

  async #deliver(notice: Notice, stop: AbortSignal): Promise<void> {
    const { delivered, attempt, ...told } = notice;
    const took = new Set(delivered);
    const errors: string[] = [];
    for (const channel of this.#channels) {
      if (took.has(channel.name)) continue;
      try {
        await channel.deliver(told, AbortSignal.any([stop, AbortSignal.timeout(TIMEOUT_MS)]));
        took.add(channel.name);
      } catch (error) {
        errors.push(`${channel.name}: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
    const failed = errors.length > 0;
    await this.#reader.noteDelivery({
      id: notice.id,
      delivered: [...took],
      wait: failed ? delay(BACKOFF, attempt, Math.random()) : null,
      error: failed ? errors.join('; ') : null,
    });
  }
}
