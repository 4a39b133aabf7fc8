import type { DevContext } from '../dev-example.ts';
import type { Staff } from './staff.ts';
import type { ObservedStore } from './store.ts';

/** What can be done to this example from the dashboard. */
export class Accidents {
  readonly #queue: ObservedStore['queue'];
  readonly #staff: Staff;
  #isPaused = false;

  constructor({ queue }: Pick<ObservedStore, 'queue'>, staff: Staff) {
    this.#queue = queue;
    this.#staff = staff;
  }

  offer(context: Pick<DevContext, 'offer'>): void {
    context.offer?.({
      id: 'kill-worker',
      title: 'Kill a worker',
      about: 'One of the two back ends gets SIGKILL in the middle of its work. The other finishes what it had in hand.',
      look: 'workers',
      run: async () => {
        const pid = await this.#staff.killOne();
        return pid === undefined ? 'no back end is running just now' : `back end ${pid} is killed; another one starts`;
      },
    });
    context.offer?.({
      id: 'pause-consumer',
      title: 'Pause a consumer',
      undo: 'Let the consumer go on',
      about: 'No back end takes requests any more. They pile up, and when it goes on, those of one file are one unit.',
      look: `queues/${this.#queue.name}`,
      isOn: () => this.#isPaused,
      run: async () => {
        if (this.#isPaused) return this.undo();
        await this.#queue.pause();
        this.#isPaused = true;
        return `queue "${this.#queue.name}" is paused: watch it grow`;
      },
    });
  }

  /** What is still to be done could not be, else. */
  async undo(): Promise<string> {
    if (this.#isPaused) await this.#queue.resume();
    this.#isPaused = false;
    return `queue "${this.#queue.name}" goes on`;
  }
}
