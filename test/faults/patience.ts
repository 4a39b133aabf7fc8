import { setTimeout as sleep } from 'node:timers/promises';
import type { Member } from './member/member.ts';

/** The longest time without progress: a busy machine is slow, but a stuck schedule must end. */
export const PATIENCE_MS = 90_000;

/** Ends when there is no progress for too long. */
export class Patience {
  readonly #ms: number;
  #most = -1;
  #last = Infinity;
  #since: number = performance.now();

  constructor(ms: number = PATIENCE_MS) {
    this.#ms = ms;
  }

  get isLeft(): boolean {
    return performance.now() - this.#since < this.#ms;
  }

  /** Notes how much is done by now. */
  see(done: number): void {
    if (done <= this.#most) return;
    this.#most = done;
    this.#since = performance.now();
  }

  /** Notes how much is left. Work may lead to further work, so less than before is progress, even if there was less earlier. */
  seeLeft(left: number): void {
    if (left < this.#last) this.#since = performance.now();
    this.#last = left;
  }
}

/** Waits until each member has noted that it is done. @param who  such as `producers` */
export async function untilDone(members: readonly Member[], who: string): Promise<void> {
  const patience = new Patience();
  for (; patience.isLeft; await sleep(50)) {
    const noted = await Promise.all(members.map((member) => member.events<{ readonly do: string }>()));
    if (noted.every((events) => events.some((event) => event.do === 'done'))) return;
    patience.see(noted.flat().length);
  }
  throw new Error(`the ${who} have done nothing for ${PATIENCE_MS} ms`);
}
