import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Answer, Args, CommandName } from '../sides/protocol.ts';

/** A library under measurement. */
export type SideName = 'pawl' | 'pawl-locks' | 'pawl-actor' | 'graphile' | 'pg-boss';

/** The folder of this project that holds the sides. */
const HERE = new URL('../', import.meta.url);

interface Waiting {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** A child process that runs one library and carries out commands, on the same Node as the harness. */
export class Side implements AsyncDisposable {
  readonly name: SideName;
  readonly of: URL;
  private readonly child: ChildProcess;
  private readonly waiting: Map<number, Waiting> = new Map();
  private readonly exited: Promise<void>;
  private ended?: Error;
  private lastId = 0;

  /** @param of  the bench folder of the side, as a URL that ends with a slash; it may be the folder of another checkout */
  constructor(name: SideName, of: URL = HERE) {
    this.name = name;
    this.of = of;
    const file = fileURLToPath(new URL(`sides/${name}.ts`, of));
    this.child = spawn(process.execPath, [file], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.exited = new Promise((resolve) => {
      this.child.once('exit', (code, signal) => {
        this.failAll(new Error(`the ${name} side ended (code ${code}, signal ${signal})`));
        resolve();
      });
    });
    // The exit event reports the end of the child. A write to a child that has ended must not end the harness.
    this.child.stdin?.on('error', () => {});
    if (this.child.stdout) createInterface({ input: this.child.stdout }).on('line', (line) => this.receive(line));
  }

  /** The id of its process. */
  get pid(): number {
    if (this.child.pid === undefined) throw new Error(`the ${this.name} side could not be started`);
    return this.child.pid;
  }

  /** Sends one command and waits for its answer. Several may be under way. */
  call<N extends CommandName>(
    name: N,
    ...args: undefined extends Args<N> ? [args?: Args<N>] : [args: Args<N>]
  ): Promise<Answer<N>> {
    const id = ++this.lastId;
    if (this.ended) return Promise.reject(this.ended);
    return new Promise<Answer<N>>((resolve, reject) => {
      this.waiting.set(id, { resolve: (value) => resolve(value as Answer<N>), reject });
      this.child.stdin?.write(`${JSON.stringify({ id, name, args: args[0] ?? {} })}\n`);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.child.stdin?.end();
    await this.exited;
  }

  private receive(line: string): void {
    // Such a line is output of the library and not an answer.
    if (!line.startsWith('{"id":')) {
      process.stderr.write(`${this.name}: ${line}\n`);
      return;
    }
    const { id, value, error } = JSON.parse(line) as { id: number; value?: unknown; error?: string };
    const waiting = this.waiting.get(id);
    this.waiting.delete(id);
    if (error === undefined) waiting?.resolve(value);
    else waiting?.reject(new Error(`the ${this.name} side failed: ${error}`));
  }

  private failAll(error: Error): void {
    this.ended = error;
    for (const { reject } of this.waiting.values()) reject(error);
    this.waiting.clear();
  }
}
