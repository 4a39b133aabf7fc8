import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

/** An instance, as the provider knows it. */
export interface Instance {
  readonly pid: number;
  readonly port: number;
}

/** What an instance answers. */
export interface Health {
  readonly pid: number;
  readonly config: unknown;
}

const READY_MS = 20_000;
const ANSWER_MS = 2000;

/**
 * A provider of instances, each a process on this machine. Like those that one rents, it takes a token: asked twice with the
 * same one, it gives the same instance.
 */
export class Provider {
  readonly #instances = new Map<string, Promise<Instance>>();
  /** Those that run. */
  readonly #processes = new Map<number, ChildProcess>();

  /** Starts an instance, or gives the one that this token has started. */
  create(token: string, signal: AbortSignal): Promise<Instance> {
    const known = this.#instances.get(token);
    if (known !== undefined) return known;
    const made = this.#start(signal);
    this.#instances.set(token, made);
    // What failed may be tried again with the same token.
    made.catch(() => this.#instances.delete(token));
    return made;
  }

  /** Ends an instance; one that is gone already is no error. Resolves when the process is no more. */
  async destroy(pid: number): Promise<void> {
    const child = this.#processes.get(pid);
    if (child === undefined) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }

  /** An accident: the instance gets no chance to tidy up. @returns whether it was still running */
  kill(pid: number): boolean {
    return this.#processes.get(pid)?.kill('SIGKILL') ?? false;
  }

  /** @throws Error  it does not answer */
  async health({ port }: Pick<Instance, 'port'>, signal: AbortSignal): Promise<Health> {
    return this.#ask(port, { signal });
  }

  async configure({ port }: Pick<Instance, 'port'>, config: unknown, signal: AbortSignal): Promise<Health> {
    return this.#ask(port, { signal, method: 'PUT', body: JSON.stringify(config) });
  }

  /** Instances that are still running. */
  get alive(): number {
    return this.#processes.size;
  }

  /** Ends whatever is left. */
  async stop(): Promise<void> {
    await Promise.all([...this.#processes.keys()].map((pid) => this.destroy(pid)));
  }

  async #ask(port: number, { signal, ...init }: RequestInit & { signal: AbortSignal }): Promise<Health> {
    const both = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]);
    const response = await fetch(`http://127.0.0.1:${port}/`, { ...init, signal: both });
    return readHealth(await response.json());
  }

  async #start(signal: AbortSignal): Promise<Instance> {
    // Node 20 does not read types: from its source the process needs tsx, compiled it needs nothing.
    const isSource = import.meta.url.endsWith('.ts');
    const script = fileURLToPath(new URL(`instance.${isSource ? 'ts' : 'js'}`, import.meta.url));
    const child = fork(script, { execArgv: isSource ? ['--import', import.meta.resolve('tsx')] : [] });
    const { pid = 0 } = child;
    this.#processes.set(pid, child);
    child.once('exit', () => this.#processes.delete(pid));
    try {
      const ready = AbortSignal.any([signal, AbortSignal.timeout(READY_MS)]);
      const [told]: unknown[] = await once(child, 'message', { signal: ready });
      if (typeof told !== 'object' || told === null || !('port' in told)) throw new Error('the instance told no port');
      return { pid, port: Number(told.port) };
    } catch (error) {
      child.kill('SIGKILL');
      throw error;
    }
  }
}

function readHealth(answer: unknown): Health {
  if (typeof answer !== 'object' || answer === null || !('pid' in answer) || !('config' in answer)) {
    throw new Error('the answer is none of an instance');
  }
  return { pid: Number(answer.pid), config: answer.config };
}
