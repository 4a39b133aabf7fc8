import { setTimeout as sleep } from 'node:timers/promises';
import { Child } from '../child.ts';
import type { Random } from '../random.ts';
import type { Written } from './handlers.ts';

export interface StaffParts {
  readonly env: Readonly<Record<string, string>>;
  readonly random: Random;
  /** Back ends at work at the same time. */
  readonly size: number;
  readonly onWritten: (written: Written) => void;
  readonly onGone: (gone: Exit) => void;
}

/** A back end that ended without a request from here. */
export interface Exit {
  readonly pid: number;
  /** We killed it; or somebody else told it to end, which it did in good order; or it broke. */
  readonly how: 'killed' | 'told' | 'broke';
  readonly lastWords: string;
}

/** Between two kills, in ms. */
const KILL_MS = 3000;

/** The back ends: as many as there should be, whichever is killed. */
export class Staff {
  readonly #parts: StaffParts;
  readonly #children = new Set<Child>();
  readonly #victims = new Set<Child>();
  #killed = 0;
  #isStopping = false;

  constructor(parts: StaffParts) {
    this.#parts = parts;
  }

  /** How many were killed. */
  get killed(): number {
    return this.#killed;
  }

  /** Resolves when all of them wait for work. */
  async start(): Promise<void> {
    await Promise.all(Array.from({ length: this.#parts.size }, () => this.#hire().ready));
  }

  /** Kills one of them every few seconds, and puts another in its place, until `signal` aborts. */
  async killSome(signal: AbortSignal): Promise<void> {
    const { random } = this.#parts;
    for (let wait = KILL_MS / 2; ; wait = KILL_MS * (0.75 + random.next() / 2)) {
      await sleep(wait, undefined, { signal }).catch(() => {});
      if (signal.aborted) return;
      await this.killOne();
    }
  }

  /** Kills one that is at work. @returns its process id; undefined when there is none just now */
  async killOne(): Promise<number | undefined> {
    const victim = this.#parts.random.pick([...this.#children]);
    if (victim === undefined) return undefined;
    this.#victims.add(victim);
    this.#killed += 1;
    await victim.kill();
    return victim.pid;
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all([...this.#children].map((child) => child.stop()));
  }

  #hire(): Child {
    const { env, onWritten, onGone } = this.#parts;
    const child = new Child(new URL('./back-end.js', import.meta.url), {
      env,
      onMessage: (message) => {
        if ('written' in message) onWritten(message.written as Written);
      },
    });
    this.#children.add(child);
    void child.exited.then(async () => {
      this.#children.delete(child);
      if (this.#isStopping) return;
      // Ctrl-C may reach it before us: its end is no accident then, whichever process receives the signal first.
      const how = this.#victims.delete(child) ? 'killed' : child.wasTold ? 'told' : 'broke';
      onGone({ pid: child.pid, how, lastWords: child.lastWords });
      // One that cannot start would not be able to a moment later either.
      if (how !== 'killed') await sleep(1000);
      if (!this.#isStopping) this.#hire();
    });
    return child;
  }
}
