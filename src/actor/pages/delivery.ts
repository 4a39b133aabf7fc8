import { TimedOut } from '../../base/errors.ts';
import { type Loop, startLoop } from '../../base/loop.ts';
import { type Backoff, delay } from '../../base/time/backoff.ts';
import { aborted, after } from '../../base/time/clock.ts';
import { formatDuration } from '../../base/time/duration.ts';
import type { Notice, PostgresActorReader } from '../postgres/reader.ts';
import type { PageChannel, PageNotice } from './channel.ts';

const POLL_MS = 5000;
const AT_ONCE = 20;
/** Less than the 30 s after which another process may try. */
const TIMEOUT_MS = 15_000;
const BACKOFF: Backoff = { kind: 'exponential', min: 1000, max: 600_000, factor: 2, jitter: 0.5 };

/**
 * Delivers notifications of pages from the outbox, each to every channel, until all channels have accepted it. A channel that
 * hangs delays neither another channel nor another notification.
 */
export class Delivery {
  readonly #reader: Pick<PostgresActorReader, 'takeNotices' | 'noteDelivery'>;
  readonly #channels: readonly PageChannel[];
  readonly #timeoutMs: number;
  readonly #onError: (error: unknown) => void;
  readonly #underWay = new Set<Promise<void>>();
  readonly #loop: Loop;

  /** @param timeoutMs  how long a channel may take */
  constructor(
    reader: Pick<PostgresActorReader, 'takeNotices' | 'noteDelivery'>,
    channels: readonly PageChannel[],
    onError: (error: unknown) => void,
    timeoutMs: number = TIMEOUT_MS,
  ) {
    this.#reader = reader;
    this.#channels = channels;
    this.#timeoutMs = timeoutMs;
    this.#onError = onError;
    this.#loop = startLoop({ name: 'actor.pages', run: (signal) => this.#take(signal), onError, unref: true });
  }

  wake(): void {
    this.#loop.wake();
  }

  async stop(): Promise<void> {
    await this.#loop.stop();
    await Promise.all(this.#underWay);
  }

  async #take(stop: AbortSignal): Promise<number> {
    const room = AT_ONCE - this.#underWay.size;
    // The next delivery that ends makes room, and checks again.
    if (room === 0) return Infinity;
    const notices = await this.#reader.takeNotices(room);
    for (const notice of notices) this.#begin(notice, stop);
    return notices.length < room ? POLL_MS : 0;
  }

  #begin(notice: Notice, stop: AbortSignal): void {
    const delivery = this.#deliver(notice, stop)
      .catch(this.#onError)
      .finally(() => {
        const wasFull = this.#underWay.size === AT_ONCE;
        this.#underWay.delete(delivery);
        if (wasFull) this.#loop.wake();
      });
    this.#underWay.add(delivery);
  }

  async #deliver(notice: Notice, stop: AbortSignal): Promise<void> {
    const { delivered, attempt, ...told } = notice;
    const missing = this.#channels.filter(({ name }) => !delivered.includes(name));
    const errors = await Promise.all(missing.map((channel) => this.#tell(channel, told, stop)));
    const refused = errors.filter((error) => error !== undefined);
    const failed = refused.length > 0;
    await this.#reader.noteDelivery({
      id: notice.id,
      delivered: [...delivered, ...missing.filter((_, index) => errors[index] === undefined).map(({ name }) => name)],
      wait: failed ? delay(BACKOFF, attempt, Math.random()) : null,
      error: failed ? refused.join('; ') : null,
    });
  }

  /** Gives up a channel that does not end in time, even if the channel ignores its signal. @returns the error */
  async #tell(channel: PageChannel, told: PageNotice, stop: AbortSignal): Promise<string | undefined> {
    const late = new AbortController();
    const cancel = after(this.#timeoutMs, () =>
      late.abort(new TimedOut(`it took longer than ${formatDuration(this.#timeoutMs)}`)),
    );
    const signal = AbortSignal.any([stop, late.signal]);
    try {
      await Promise.race([channel.deliver(told, signal), aborted(signal)]);
      return undefined;
    } catch (error) {
      return `${channel.name}: ${error instanceof Error ? error.message : String(error)}`;
    } finally {
      cancel();
    }
  }
}
