import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Files } from 'pawl/files';
import { Child } from '../child.ts';
import type { DevContext, DevExample, Figures } from '../dev-example.ts';
import { Folder } from '../folder.ts';
import { Random } from '../random.ts';
import { Client } from './client.ts';
import { readLog, unpack } from './pack.ts';
import { openDocuments } from './store.ts';

/** A document has a file of each client: 1 to 50 MB in all. The larger one is, the more seldom it is changed. */
const DOCUMENTS = [
  { id: 'notes', fileBytes: [1_000_000, 1_500_000], often: 20 },
  { id: 'plans/2027', fileBytes: [2_000_000, 4_000_000], often: 4 },
  { id: 'repository', fileBytes: [8_000_000, 16_000_000], often: 1 },
] as const;
const DRAW = DOCUMENTS.flatMap((document) => Array.from({ length: document.often }, () => document));
const CLIENTS = 3;
/** What each client changes at most, so that a machine has time left for others. */
const BYTES_PER_MS = 8000;
const KILL_MS = 1500;
const SWEEP_MS = 60_000;

/** Two front ends and two workers as processes of their own, clients that pull and push, and somebody who kills both kinds. */
export class DocumentsDev implements DevExample {
  readonly name = 'documents';
  readonly #context: DevContext;
  readonly #random: Random;
  readonly #clients = Array.from({ length: CLIENTS }, (_, index) => new Client(`client-${index + 1}`));
  readonly #problems: string[] = [];
  readonly #frontEnds: { child: Child; url: string }[] = [];
  readonly #workers: Child[] = [];
  #folder: Folder | undefined;
  #files: Files | undefined;
  #figures = { writes: 0, conflicts: 0, unknown: 0, reads: 0, corrupt: 0, killed: 0, killedWriting: 0, orphans: 0 };
  readonly #writing = new Set<number>();

  constructor(context: DevContext) {
    this.#context = context;
    this.#random = new Random(context.seed);
  }

  async start(): Promise<void> {
    this.#folder = await Folder.open(this.#context, 'documents');
    this.#files = openDocuments(this.#context.engine, this.#in('objects'));
    this.#context.show?.({ files: [this.#files] });
    await Promise.all(
      [0, 1].map(async (place) => {
        await this.#startFrontEnd(place);
        await this.#startWorker(place);
      }),
    );
    this.#context.log(
      `documents: two front ends at ${this.#frontEnds.map(({ url }) => url).join(' and ')}, two workers`,
    );
  }

  async feed(signal: AbortSignal): Promise<void> {
    const pushing = this.#clients.map((client) => this.#push(client, signal));
    for (let turn = 0; !signal.aborted; turn++) {
      await sleep(KILL_MS, undefined, { signal }).catch(() => {});
      if (!signal.aborted) await this.#kill(turn);
    }
    await Promise.all(pushing);
  }

  async finish(): Promise<Figures> {
    const files = this.#files;
    if (files === undefined) return { ok: false };
    await Promise.all(this.#workers.map((worker) => worker.stop()));
    await this.#sweep(files);
    await this.#check(files);
    const { writes, corrupt, orphans } = this.#figures;
    const ok = this.#problems.length === 0 && corrupt === 0 && orphans === 0;
    this.#context.log(
      `documents: ${writes} versions written, ${this.#figures.killed} processes killed, ${orphans} orphans`,
    );
    return { ok, ...this.#figures, ...(this.#problems.length > 0 && { problems: this.#problems.slice(0, 10) }) };
  }

  async stop(): Promise<void> {
    await Promise.all([
      ...this.#frontEnds.map(({ child }) => child.stop()),
      ...this.#workers.map((each) => each.stop()),
    ]);
    await this.#files?.stop();
    await this.#folder?.close();
  }

  async #push(client: Client, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const url = this.#random.pick(this.#frontEnds)?.url ?? '';
      const { id, fileBytes } = this.#random.pick(DRAW) ?? DOCUMENTS[0];
      const [least, most] = fileBytes;
      const bytes = randomBytes(this.#random.whole(least, most));
      // A front end that was killed under a pull: another one has the document.
      const pushed = await client.change(url, id, bytes).catch(() => 'unknown' as const);
      if (pushed === 'written') this.#figures.writes += 1;
      else if (pushed === 'conflict') this.#figures.conflicts += 1;
      else this.#figures.unknown += 1;
      await sleep(bytes.length / BYTES_PER_MS, undefined, { signal }).catch(() => {});
    }
  }

  /** In turns a front end, best in the middle of a write, and a worker. */
  async #kill(turn: number): Promise<void> {
    const place = Math.floor(turn / 2) % 2;
    if (turn % 2 === 1) {
      await this.#workers[place]?.kill();
      await this.#startWorker(place);
    } else {
      const frontEnd = this.#frontEnds[place]?.child;
      for (let wait = 0; wait < 50 && !this.#writing.has(frontEnd?.pid ?? 0); wait++) await sleep(2);
      if (this.#writing.has(frontEnd?.pid ?? 0)) this.#figures.killedWriting += 1;
      await frontEnd?.kill();
      await this.#startFrontEnd(place);
    }
    this.#figures.killed += 1;
  }

  async #startFrontEnd(place: number): Promise<void> {
    const onMessage = (message: object): void => {
      if ('writing' in message) this.#writing.add(child.pid);
      else if ('wrote' in message) this.#writing.delete(child.pid);
    };
    const child = new Child(new URL('./front-end.js', import.meta.url), { env: this.#env(place), onMessage });
    const ready = await child.ready;
    this.#frontEnds[place] = { child, url: `http://127.0.0.1:${'port' in ready ? Number(ready.port) : 0}` };
  }

  async #startWorker(place: number): Promise<void> {
    const onMessage = (message: object): void => {
      if (!('read' in message)) return;
      this.#figures.reads += 1;
      if (!('isRight' in message) || message.isRight !== true) this.#figures.corrupt += 1;
    };
    const child = new Child(new URL('./worker.js', import.meta.url), { env: this.#env(place), onMessage });
    this.#workers[place] = child;
    await child.ready;
  }

  #env(place: number): Record<string, string> {
    return {
      DATABASE_URL: this.#context.url,
      DOCUMENTS_DIR: this.#in('objects'),
      // Each worker as if on a host of its own.
      DOCUMENTS_HOT: this.#in(`hot-${place}`),
    };
  }

  #in(...path: string[]): string {
    return join(this.#folder?.path ?? '', ...path);
  }

  /** Until the database says that nothing is left to collect. */
  async #sweep(files: Files): Promise<void> {
    const deadline = Date.now() + SWEEP_MS;
    for (;;) {
      await files.sweep();
      const { pending, retired, deleting } = await files.collector();
      if (pending + retired + deleting === 0) return;
      if (Date.now() > deadline) return void this.#problems.push(`after ${SWEEP_MS} ms there is something to collect`);
      await sleep(250);
    }
  }

  /** Every document is whole and has every push that was confirmed; the store has its objects and no others. */
  async #check(files: Files): Promise<void> {
    const lines = new Set<string>();
    const wanted = new Set<string>();
    for (const { id, object, version } of await files.list()) {
      wanted.add(object);
      const chunks: Buffer[] = [];
      for await (const chunk of (await files.read(id)).stream) chunks.push(chunk);
      const log = readLog(unpack(Buffer.concat(chunks)));
      if (log.length !== version) this.#problems.push(`${id} has ${log.length} pushes in version ${version}`);
      for (const line of log) lines.add(`${id} ${line}`);
    }
    const confirmed = this.#clients.flatMap((client) => client.confirmed);
    for (const line of confirmed) if (!lines.has(line)) this.#problems.push(`the push ${line} is lost`);
    const there = await readdir(this.#in('objects', 'objects'), {
      recursive: true,
      withFileTypes: true,
    }).catch(() => []);
    const names = there.filter((entry) => entry.isFile()).map((entry) => entry.name);
    this.#figures.orphans = names.filter((name) => !wanted.has(name)).length;
  }
}
