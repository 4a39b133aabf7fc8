import { ConnectionFailed } from 'pawl';
import { type ActorSummary, type Actors, createActors, type Dispatcher } from 'pawl/actor';
import type { DevContext, DevExample, Figures } from '../dev-example.ts';
import { type Cloud, cloud } from './actors.ts';
import { Provider } from './provider.ts';

interface ServerFields {
  readonly instance?: { readonly pid: number };
  readonly healed: number;
  readonly configured: number;
}

const STEP_MS = 60_000;
const POLL_MS = 50;
/** Between two accidents. */
const PAUSE_MS = 1500;

/** A little cloud: a formation of real processes is made, grows, is hurt and heals, and is destroyed. */
export class CloudDev implements DevExample {
  readonly name = 'cloud';
  readonly #context: DevContext;
  readonly #provider = new Provider();
  readonly #types: Cloud;
  readonly #actors: Actors;
  readonly #problems: string[] = [];
  #dispatcher: Dispatcher | undefined;
  #formation: string | undefined;
  #killed = 0;

  constructor(context: DevContext) {
    this.#context = context;
    this.#types = cloud(this.#provider);
    const { Formation, Server, Image, Timeline, Role } = this.#types;
    this.#actors = createActors(context.engine, [Formation, Server, Image, Timeline, Role]);
  }

  async start(): Promise<void> {
    this.#dispatcher = this.#actors.run({ concurrency: 20 });
    this.#context.show?.({ actors: [this.#actors] });
    await this.#dispatcher.started;
  }

  async feed(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const { Formation } = this.#types;
    const { id } = await this.#actors.create(Formation, { size: 3, servers: [], rounds: 0 });
    this.#formation = id;
    this.#context.log(`cloud: formation ${id} is made: three servers, each a process`);
    await this.#until('all servers run', () => this.#isRunning(id), signal);
    if (signal.aborted) return;
    // Two nodes asked for at once: the servers there are learn of both in one round.
    await this.#context.engine.transaction(async (tx) => {
      for (let node = 0; node < 2; node += 1) await this.#actors.incr(id, 'addNode', { tx });
    });
    await this.#until('the nodes are added', () => this.#isRunning(id, 5), signal);
    for (let index = 0; !signal.aborted; index += 1) {
      await this.#hurt(index);
      await pause(PAUSE_MS, signal);
    }
  }

  async finish(): Promise<Figures> {
    if (this.#formation === undefined) return { ok: true, healed: 0, orphans: 0 };
    // So that there is a figure to report: a run that was too short for an accident has one now.
    if (this.#killed === 0 && this.#context.exitAfterMs !== undefined) await this.#hurtWhatRuns();
    await this.#until('what was killed is healed', async () => (await this.#healed()) >= this.#killed);
    const servers = await this.#servers();
    const [healed, configured] = [await this.#healed(), sum(servers, ({ configured: n }) => n)];
    const { fields } = await this.#actors.get(this.#formation);
    await this.#actors.destroy(this.#formation);
    await this.#until('nothing is left', async () => (await this.#actors.list()).length === 0);
    const orphans = this.#provider.alive + (await this.#actors.list()).length;
    const pages = (await this.#actors.pages()).length;
    if (pages > 0) this.#problems.push(`${pages} pages are still open`);
    this.#context.log(`cloud: ${servers.length} servers, ${this.#killed} killed, ${healed} healed, ${orphans} orphans`);
    const ok = orphans === 0 && this.#problems.length === 0 && healed >= this.#killed;
    const rounds: unknown = Reflect.get(Object(fields), 'rounds');
    const figures = { servers: servers.length, rounds, configured, killed: this.#killed, healed, orphans };
    return this.#problems.length === 0 ? { ok, ...figures } : { ok, ...figures, problems: this.#problems };
  }

  async stop(): Promise<void> {
    await this.#dispatcher?.stop({ timeout: 2000 });
    await this.#provider.stop();
  }

  /** Kills an instance, and waits until its server has noticed and has healed itself. */
  async #hurt(index: number): Promise<void> {
    const all = await this.#list();
    const victim = all[index % all.length];
    if (victim === undefined) return;
    const before = await this.#fieldsOf(victim.id);
    if (before.instance === undefined) return;
    // It may have ended since its server was read, and its number may be somebody else's by now.
    if (!this.#provider.kill(before.instance.pid)) return;
    this.#killed += 1;
    this.#context.log(`cloud: the instance of server ${victim.id} is killed`);
    const isHealed = async (): Promise<boolean> => {
      const { state } = await this.#actors.get(victim.id);
      return state === 'running' && (await this.#fieldsOf(victim.id)).healed > before.healed;
    };
    await this.#until(`server ${victim.id} is healed`, isHealed);
  }

  async #hurtWhatRuns(): Promise<void> {
    const running = async (): Promise<number> => (await this.#list()).findIndex(({ state }) => state === 'running');
    await this.#until('a server runs', async () => (await running()) >= 0);
    await this.#hurt(await running());
  }

  async #isRunning(id: string, servers = 3): Promise<boolean> {
    const { state } = await this.#actors.get(id);
    const all = await this.#list();
    return state === 'running' && all.length === servers && all.every((server) => server.state === 'running');
  }

  #list(): Promise<ActorSummary[]> {
    return this.#actors.list({ type: 'server' });
  }

  async #servers(): Promise<ServerFields[]> {
    return Promise.all((await this.#list()).map(({ id }) => this.#fieldsOf(id)));
  }

  async #healed(): Promise<number> {
    return sum(await this.#servers(), ({ healed }) => healed);
  }

  async #fieldsOf(id: string): Promise<ServerFields> {
    const { fields } = await this.#actors.get(id);
    return fields as ServerFields;
  }

  async #until(what: string, holds: () => Promise<boolean>, signal?: AbortSignal): Promise<void> {
    const deadline = Date.now() + STEP_MS;
    while (signal?.aborted !== true && !(await holds().catch(notReached))) {
      if (Date.now() > deadline) {
        this.#problems.push(`waited without success until ${what}`);
        return;
      }
      await pause(POLL_MS, signal);
    }
  }
}

function sum(servers: readonly ServerFields[], of: (server: ServerFields) => number): number {
  return servers.reduce((all, server) => all + of(server), 0);
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end, { once: true });
    if (signal?.aborted) end();
  });
}

/** Looking again does no harm where the database could not be reached; that it cannot for long is what the time limit says. */
function notReached(error: unknown): false {
  if (error instanceof ConnectionFailed) return false;
  throw error;
}
