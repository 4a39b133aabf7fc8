import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Child, type Exit, startChild } from '../../support/children/child-process.ts';
import { type Proxy, startProxy } from '../../support/proxy.ts';
import type { Ground } from '../ground.ts';

/** An order to a member, on its standard input. */
export type Order = { readonly stepClock: number } | { readonly block: number } | { readonly stop: true };

/** An event of a member's log, as the part's scripts note it. */
export type Note<E> = E & { readonly at: number; readonly pid: number; readonly member: string };

export interface MemberOptions {
  /** A path from test/, such as `faults/queue/worker.child.ts`. */
  readonly script: string;
  readonly name: string;
  readonly env?: Readonly<Record<string, string>>;
  /** The server behind its proxy. Default: the schedule's database. */
  readonly before?: string;
}

/** The surroundings of a member. */
export interface Home {
  readonly ground: Ground;
  /** Of the database, without a proxy. */
  readonly url: string;
  readonly folder: string;
  readonly plant: string | undefined;
}

/** The pause of a supervisor before it restarts a process that ended by itself. */
const RESTART_MS = 200;
/** The time that supervisors usually grant: a process that must stop ends within it. */
const STOP_MS = 30_000;

/** A process with its own proxy before the database, and with a supervisor that restarts it after every end. */
export class Member {
  readonly name: string;
  readonly proxy: Proxy;
  /** Ends of the process that no fault explains, in words. */
  readonly crashes: string[] = [];
  readonly #options: MemberOptions;
  readonly #home: Home;
  readonly #log: string;
  readonly #events: Note<object>[] = [];
  #readBytes = 0;
  #reading: Promise<void> = Promise.resolve();
  #child: Child;
  #isSupervised = true;
  #restartMs = RESTART_MS;
  /** The child process that was asked to stop. */
  #told: Child | undefined;
  #living: Promise<void>;

  static async start(options: MemberOptions, home: Home): Promise<Member> {
    const direct = new URL(options.before ?? home.url);
    // By this name, `terminate` finds the server processes of this member.
    direct.searchParams.set('application_name', options.name);
    const member = new Member(options, home, await startProxy(direct.href));
    await member.#child.message();
    return member;
  }

  private constructor(options: MemberOptions, home: Home, proxy: Proxy) {
    this.name = options.name;
    this.proxy = proxy;
    this.#options = options;
    this.#home = home;
    this.#log = join(home.folder, `${options.name}.jsonl`);
    this.#child = this.#spawn();
    this.#living = this.#supervise();
  }

  get pid(): number {
    return this.#child.pid;
  }

  /** SIGKILL; the supervisor restarts the process after this time. */
  async kill(restartMs: number): Promise<void> {
    this.#restartMs = restartMs;
    await this.#child.kill();
  }

  /** SIGSTOP for this long. */
  async stand(ms: number): Promise<void> {
    const child = this.#child;
    child.pause();
    await sleep(ms);
    child.resume();
  }

  /** The last lines that its current process wrote to standard error. */
  lastWords(): string[] {
    const lines = this.#child.stderr().trim().split('\n').slice(-3);
    return lines.filter((line) => line !== '').map((line) => `${this.name} says ${line.slice(0, 400)}`);
  }

  /** Whether it lives, its last note, and its last words. */
  async describe(): Promise<string[]> {
    const exit = await Promise.race([this.#child.exited, Promise.resolve(undefined)]);
    const life = exit === undefined ? `process ${this.pid} has not ended` : `ended with ${tell(exit, this.#child)}`;
    const last = (await this.events<object>()).at(-1);
    return [`${this.name}: ${life}; its last note is ${JSON.stringify(last)}`, ...this.lastWords()];
  }

  tell(order: Order): void {
    if ('stop' in order) this.#told = this.#child;
    this.#child.send(order);
  }

  /** Ends the member for good, as a supervisor would. @returns a complaint if it did not end in time, or not well */
  async stop(): Promise<string | undefined> {
    this.#isSupervised = false;
    this.tell({ stop: true });
    const exit = await Promise.race([this.#child.exited, sleep(STOP_MS, undefined, { ref: false })]);
    // A handler may have killed the process at the last moment.
    if (exit?.code === 0 || exit?.signal === 'SIGKILL') return undefined;
    await this.end();
    return exit === undefined
      ? `${this.name} has not ended ${STOP_MS} ms after it was told to stop`
      : `${this.name} was told to stop and ended with ${tell(exit, this.#child)}`;
  }

  /** Ends the process and its proxy at once. */
  async end(): Promise<void> {
    this.#isSupervised = false;
    await this.#child.kill();
    await this.#living;
    await this.proxy.stop();
  }

  /** Its notes so far, of all its processes. A line that was cut off by a kill is left out. */
  async events<E>(): Promise<Note<E>[]> {
    // To read all notes again each time would take most of the processor time of a schedule.
    this.#reading = this.#reading.then(() => this.#readOn());
    await this.#reading;
    // The script of the member decides the type of its notes.
    return [...this.#events] as Note<E>[];
  }

  async #readOn(): Promise<void> {
    const file = await open(this.#log, 'r').catch(() => undefined);
    if (file === undefined) return;
    try {
      const { size } = await file.stat();
      if (size === this.#readBytes) return;
      const { buffer, bytesRead } = await file.read(Buffer.alloc(size - this.#readBytes), 0, null, this.#readBytes);
      const end = buffer.subarray(0, bytesRead).lastIndexOf(10) + 1;
      const lines = buffer.toString('utf8', 0, end).split('\n').slice(0, -1);
      this.#events.push(...lines.map((line) => ({ ...JSON.parse(line), member: this.name })));
      this.#readBytes += end;
    } finally {
      await file.close();
    }
  }

  #spawn(): Child {
    const { ground, url, plant } = this.#home;
    const env = {
      FAULTS_URL: this.proxy.url,
      FAULTS_DIRECT_URL: url,
      FAULTS_NAME: this.name,
      FAULTS_LOG: this.#log,
      ...(plant === undefined ? {} : { FAULTS_PLANT: plant }),
      ...this.#options.env,
    };
    return startChild(this.#options.script, { folder: ground.children, env });
  }

  async #supervise(): Promise<void> {
    for (;;) {
      const child = this.#child;
      const exit = await child.exited;
      if (!this.#isSupervised) return;
      // Only a fault, or a handler by its orders, sends SIGKILL.
      const isMeant = exit.signal === 'SIGKILL' || (exit.code === 0 && child === this.#told);
      if (!isMeant) this.crashes.push(`${this.name} ended with ${tell(exit, child)}`);
      await sleep(this.#restartMs);
      this.#restartMs = RESTART_MS;
      if (!this.#isSupervised) return;
      this.#child = this.#spawn();
    }
  }
}

function tell({ code, signal }: Exit, child: Child): string {
  return `${signal ?? `code ${code}`}: ${child.stderr().slice(-2000)}`;
}
