import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { until } from './eventually.ts';

/** How a driver ends a transaction: a simple query, with its length before it, so not the end of a statement's name. */
export const COMMIT = '\0\0\0\x0bcommit\0';

/** A TCP proxy before a database that can fail the way networks do. */
export interface Proxy {
  /** The database's URL with the proxy's address. */
  readonly url: string;
  /** Connections open now. */
  readonly open: number;
  /** Connections accepted so far, and refused. */
  readonly accepted: number;
  readonly refused: number;
  /** What clients have sent so far, in pieces: one for each request that is sent when the one before is answered. */
  readonly sent: number;
  /** Answers that were not passed, by `loseAnswerTo()`. */
  readonly lost: number;
  /** Resolves when all that clients wait for now has been answered. */
  answered(): Promise<unknown>;
  /** Resets every open connection; new ones are accepted. */
  cut(): void;
  /** Resets every open connection and refuses new ones until `accept()`. */
  refuse(): void;
  accept(): void;
  /** Passes nothing more in either direction on open connections, without closing them: a half-open socket. */
  stall(): void;
  /** As `stall()`, and what connects until `accept()` is accepted and never answered: a silent network. */
  silence(): void;
  /** Between `silence()` and `accept()`. */
  readonly isSilent: boolean;
  /** Open connections still pass on what clients send, and never again what the server answers: half open. */
  deafen(): void;
  /** From now on every answer comes so much later. */
  delay(ms: number): void;
  /** Holds back what both sides send, on connections new and old, until `thaw()` passes it on: a network that is slow, not broken. */
  freeze(): void;
  thaw(): void;
  /** From now on, so many times: passes what the client sends that holds `text`, and resets instead of passing the answer. */
  loseAnswerTo(text: string, times?: number): void;
  /** From now on: resets as soon as the client sends what holds `text`, before it reaches the server. */
  loseRequest(text: string): void;
  stop(): Promise<void>;
}

export async function startProxy(databaseUrl: string): Promise<Proxy> {
  const target = new URL(databaseUrl);
  const links = new Set<Link>();
  const faults: Faults = { answerLost: undefined, toLose: 0, requestLost: undefined, delayMs: 0, sent: 0, lost: 0 };
  let refusing = false;
  let silent = false;
  let frozen = false;
  let accepted = 0;
  let refused = 0;
  // As drivers do: what the server says by itself, such as a notification, would else wait until the client has said something.
  const server = createServer({ noDelay: true }, (client) => {
    if (refusing) {
      refused += 1;
      client.resetAndDestroy();
      return;
    }
    accepted += 1;
    const server = connect({ port: Number(target.port || 5432), host: target.hostname, noDelay: true });
    const link = new Link(client, server, faults);
    link.stalled = silent;
    if (frozen) link.freeze();
    links.add(link);
    // A stalled link outlives its client: only the reset tells the server. A frozen one outlives the server: what its client says comes later.
    const forget = (): void => void (client.closed && server.closed && links.delete(link));
    server.on('close', forget);
    client.on('close', forget);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = new URL(databaseUrl);
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as AddressInfo).port);
  const cut = (): void => {
    for (const link of links) {
      link.reset();
    }
  };
  const stall = (): void => {
    for (const link of links) {
      link.stalled = true;
    }
  };
  return {
    url: url.toString(),
    get open() {
      return [...links].filter((link) => link.isOpen).length;
    },
    get accepted() {
      return accepted;
    },
    get refused() {
      return refused;
    },
    get sent() {
      return faults.sent;
    },
    get lost() {
      return faults.lost;
    },
    answered: () => {
      const open = [...links].map((link) => ({ link, after: link.isAsking ? link.answers : -1 }));
      return until('all is answered', () => open.every(({ link, after }) => link.answers > after || !link.isOpen));
    },
    cut,
    refuse: () => {
      refusing = true;
      cut();
    },
    accept: () => {
      refusing = false;
      silent = false;
    },
    stall,
    get isSilent() {
      return silent;
    },
    silence: () => {
      silent = true;
      stall();
    },
    deafen: () => {
      for (const link of links) {
        link.deaf = true;
      }
    },
    delay: (ms) => {
      faults.delayMs = ms;
    },
    freeze: () => {
      frozen = true;
      for (const link of links) link.freeze();
    },
    thaw: () => {
      frozen = false;
      for (const link of links) link.thaw();
    },
    loseAnswerTo: (text, times = Infinity) => {
      faults.answerLost = text;
      faults.toLose = times;
    },
    loseRequest: (text) => {
      faults.requestLost = text;
    },
    stop: async () => {
      cut();
      server.close();
      await once(server, 'close');
    },
  };
}

/** What all connections have in common. */
interface Faults {
  sent: number;
  lost: number;
  answerLost: string | undefined;
  toLose: number;
  requestLost: string | undefined;
  delayMs: number;
}

class Link {
  stalled = false;
  /** Hears nothing from the server any more. */
  deaf = false;
  /** The client has said something since the server's last word. */
  isAsking = false;
  /** How many pieces the server has said that were passed on. */
  answers = 0;
  readonly #client: Socket;
  readonly #server: Socket;
  readonly #faults: Faults;
  #resetOnAnswer = false;

  constructor(client: Socket, server: Socket, faults: Faults) {
    this.#client = client;
    this.#server = server;
    this.#faults = faults;
    client.on('data', (data) => this.#fromClient(data, faults));
    server.on('data', (data) => this.#fromServer(data));
    client.on('error', () => this.stalled || server.destroy());
    server.on('error', () => this.stalled || client.destroy());
    client.on('close', () => this.stalled || server.end());
    server.on('close', () => this.stalled || this.deaf || client.end());
  }

  /** True while the client's side is connected. */
  get isOpen(): boolean {
    return !this.#client.destroyed;
  }

  reset(): void {
    this.#client.resetAndDestroy();
    this.#server.destroy();
  }

  freeze(): void {
    this.#client.pause();
    this.#server.pause();
  }

  thaw(): void {
    this.#client.resume();
    this.#server.resume();
  }

  #fromClient(data: Buffer, faults: Faults): void {
    faults.sent += 1;
    if (this.stalled) {
      return;
    }
    if (faults.requestLost !== undefined && data.includes(faults.requestLost)) {
      this.reset();
      return;
    }
    this.#resetOnAnswer ||= faults.toLose > 0 && faults.answerLost !== undefined && data.includes(faults.answerLost);
    this.isAsking = true;
    this.#server.write(data);
  }

  #fromServer(data: Buffer): void {
    if (this.stalled || this.deaf) {
      return;
    }
    if (this.#resetOnAnswer) {
      this.#faults.lost += 1;
      this.#faults.toLose -= 1;
      this.reset();
    } else if (this.#faults.delayMs === 0) {
      this.#answer(data);
    } else {
      setTimeout(() => this.#answer(data), this.#faults.delayMs);
    }
  }

  #answer(data: Buffer): void {
    this.isAsking = false;
    this.answers += 1;
    this.#client.write(data);
  }
}
