import { readdirSync, readFileSync } from 'node:fs';
import { now, sleep } from '../../base/time/clock.ts';

/** Between two looks, which read all of /proc where something is left: short at first, for what ends at once. */
const LOOK_MS = { first: 5, growth: 1.5, most: 100 };

/** A process group, by the pid of the process that it began with: which may have ended, while what it started goes on. */
export class ProcessGroup {
  readonly #id: number;

  constructor(id: number) {
    this.#id = id;
  }

  /** @returns false when no process is left that we may send a signal to */
  send(signal: NodeJS.Signals): boolean {
    return this.#kill(signal) === 'sent';
  }

  /** Whether no process of the group works any more. */
  get isGone(): boolean {
    const outcome = this.#kill(0);
    // A process that has ended and that its parent has not collected still takes signals; in a container without an init that is for ever.
    return outcome === 'nobody' || (process.platform === 'linux' && !isAtWork(this.#id));
  }

  /** Waits until no process of the group works any more, at most for that time. @returns whether none does */
  async gone(withinMs: number): Promise<boolean> {
    const until = now() + withinMs;
    for (let restMs: number = LOOK_MS.first; ; restMs = Math.min(restMs * LOOK_MS.growth, LOOK_MS.most)) {
      if (this.isGone) return true;
      if (now() >= until) return false;
      await sleep(Math.min(restMs, until - now()));
    }
  }

  #kill(signal: NodeJS.Signals | 0): 'sent' | 'nobody' | 'refused' {
    try {
      process.kill(-this.#id, signal);
      return 'sent';
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? error.code : undefined;
      if (code === 'ESRCH') return 'nobody';
      // All that is left of it runs as somebody else.
      if (code === 'EPERM') return 'refused';
      throw error;
    }
  }
}

/** Whether a process of the group is there that has not ended. */
function isAtWork(group: number): boolean {
  return readdirSync('/proc').some((entry) => {
    if (!/^\d+$/.test(entry)) return false;
    const [state, , itsGroup] = statOf(entry);
    return Number(itsGroup) === group && state !== 'Z' && state !== 'X';
  });
}

/** State, parent, group and so on: what stands behind the name, which may hold anything. Empty when it has ended meanwhile. */
function statOf(pid: string): readonly string[] {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  } catch {
    return [];
  }
}
