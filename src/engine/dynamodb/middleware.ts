/** A command of the SDK, as far as sending it goes. */
export interface Command {
  readonly middlewareStack: MiddlewareStack;
  resolveMiddleware(stack: MiddlewareStack, config: unknown, options: unknown): unknown;
}

/** What a command, or a client, has its requests pass through. */
export interface MiddlewareStack {
  add(middleware: Middleware, options: object): void;
  remove(name: string): boolean;
  /** With those of another one. */
  concat(other: MiddlewareStack): MiddlewareStack;
  /** The names of all, with their steps. */
  identify(): readonly string[];
}

/** Something that each request of it passes through. */
export type Middleware = (next: Handler) => Handler;

export type Handler = (args: Arguments) => Promise<Answer>;

/** What is asked for; the request once it was made of that. */
export interface Arguments {
  readonly input: unknown;
  readonly request?: unknown;
}

/** What came back; the output once it was read. */
export interface Answer {
  readonly response: unknown;
  readonly output?: unknown;
}
