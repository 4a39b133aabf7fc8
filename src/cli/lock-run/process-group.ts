import { readdirSync, readFileSync } from 'node:fs';
import { now, sleep } from '../../base/time/clock.ts';

/**
 * The pause between two checks, each of which reads all of /proc if a process is left. It is short at first, for groups that
 * end at once.
 */
const LOOK_MS = { first: 5, growth: 1.5, most: 100 };

/** A process group, by the pid of its first process. That process may have ended while processes that it started go on. */
export class ProcessGroup {
  readonly #id: number;

  constructor(id: number) {
    this.#id = id;
  }

  /** @returns false if no process is left that we may send a signal to */
  send(signal: NodeJS.Signals): boolean {
    return this.#kill(signal) === 'sent';
  }

  /** True if no process of the group works any more. */
  get isGone(): boolean {
    const outcome = this.#kill(0);
    // A process that has ended still takes signals until its parent has collected it; in a container without an init that is
    // for ever.
    return outcome === 'nobody' || (process.platform === 'linux' && !isAtWork(this.#id));
  }

  /** Waits until no process of the group works any more, but not longer than this. @returns whether none does */
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
      // All processes that are left run as another user.
      if (code === 'EPERM') return 'refused';
      throw error;
    }
  }
}

/** True if the group has a process that has not ended. */
function isAtWork(group: number): boolean {
  return readdirSync('/proc').some((entry) => {
    if (!/^\d+$/.test(entry)) return false;
    const [state, , itsGroup] = statOf(entry);
    return Number(itsGroup) === group && state !== 'Z' && state !== 'X';
  });
}

/**
 * State, parent, group and so on: the fields after the name, which may contain any character. Empty if the process has ended.
 */
function statOf(pid: string): readonly string[] {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  } catch {
    return [];
  }
}
