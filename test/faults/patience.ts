import { setTimeout as sleep } from 'node:timers/promises';
import type { Member } from './member/member.ts';

/** The longest time without progress: a busy machine is slow, but a stuck schedule must end. */
export const PATIENCE_MS = 90_000;

/** Ends when there is no progress for too long. */
export class Patience {
  #most = -1;
  #since: number = performance.now();

  get isLeft(): boolean {
    return performance.now() - this.#since < PATIENCE_MS;
  }

  /** Notes how much is done by now. */
  see(done: number): void {
    if (done <= this.#most) return;
    this.#most = done;
    this.#since = performance.now();
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
