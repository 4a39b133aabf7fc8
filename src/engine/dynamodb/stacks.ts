import { now } from '../../base/time/clock.ts';
import type { Command } from './middleware.ts';
import { Wire } from './wire.ts';

/** A client's middleware, put together for an operation. */
interface Stack {
  readonly madeAt: number;
  /** What it reads with each request. */
  readonly options: { abortSignal: AbortSignal };
  /** Of which client's stack and configuration, and what came of it. */
  made: { readonly clientStack: unknown; readonly config: unknown; readonly handler: unknown } | undefined;
}

/** What the owner of the client adds to its middleware meanwhile counts from then on. */
const KEEP_MS = 1000;

/**
 * The SDK puts a client's middleware together anew for each request, which is a tenth of what a request takes in this process.
 * Here a later one of the same operation uses it again, never two at once, and nothing that had a failure: what the
 * middleware notes about a request is overwritten by the next one, as with the client's own option `cacheMiddleware`.
 */
export class Stacks {
  readonly #free = new Map<string, Stack[]>();

  /** Sends the command with what was put together before, if there is something. @param send  with these options */
  async send(
    operation: string,
    command: Command,
    abortSignal: AbortSignal,
    send: (options: object) => Promise<unknown>,
  ): Promise<unknown> {
    const free = this.#of(operation);
    const stack = takeFresh(free) ?? { madeAt: now(), options: { abortSignal }, made: undefined };
    stack.options.abortSignal = abortSignal;
    lend(stack, command, operation);
    const output = await send(stack.options);
    free.push(stack);
    return output;
  }

  #of(operation: string): Stack[] {
    let free = this.#free.get(operation);
    if (free === undefined) {
      free = [];
      this.#free.set(operation, free);
    }
    return free;
  }
}

function takeFresh(free: Stack[]): Stack | undefined {
  const stack = free.pop();
  if (stack === undefined || now() - stack.madeAt < KEEP_MS) return stack;
  // Those below are older, or will be soon.
  free.length = 0;
  return undefined;
}

/** The command stays one of the SDK's, and whatever a client of the user's does with it on the way has its effect. */
function lend(stack: Stack, command: Command, operation: string): void {
  const resolve = command.resolveMiddleware.bind(command);
  command.resolveMiddleware = (clientStack, config, options) => {
    const isPlain = options === stack.options && command.middlewareStack.identify().length === 0;
    if (!isPlain) return resolve(clientStack, config, options);
    const { made } = stack;
    if (made !== undefined && made.clientStack === clientStack && made.config === config) return made.handler;
    const putTogether = (): unknown => resolve(clientStack, config, options);
    const handler = Wire.isFor(operation) ? new Wire().putInto(command, clientStack, putTogether) : putTogether();
    stack.made = { clientStack, config, handler };
    return handler;
  };
}
