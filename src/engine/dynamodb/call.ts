import { ConnectionFailed, NotSupported } from '../../base/errors.ts';
import { isObject } from '../../base/options/shape.ts';
import { after, moment, now, sleep, waitedFor } from '../../base/time/clock.ts';
import type { CallLimits, DynamoClient, Reply } from './client.ts';
import { attemptsOf, failure, isRefusal, isTransient, type Transient } from './failure.ts';
import type { ServiceClock } from './service-clock.ts';

/** The operations that Pawl uses: an IAM policy has to allow them. */
export type Operation =
  | 'GetItem'
  | 'UpdateItem'
  | 'DeleteItem'
  | 'Query'
  | 'Scan'
  | 'TransactWriteItems'
  | 'CreateTable'
  | 'DescribeTable'
  | 'DescribeTimeToLive'
  | 'UpdateTimeToLive';

/** The condition of a request did not hold. */
export class ConditionRefusal extends Error {
  override readonly name = 'ConditionRefusal';
  /** The item at that time, if the service returns it. */
  readonly item: unknown;
  /** True: an earlier try may have been carried out, and have caused the refusal. */
  readonly isRepeated: boolean;

  constructor(item: unknown, isRepeated: boolean) {
    super('the condition of a request did not hold');
    this.item = item;
    this.isRepeated = isRepeated;
  }
}

// A try without an answer is given up early enough for another try, since the service answers in milliseconds.
const SHORTEST_TRY_MS = 250;
const LONGEST_TRY_MS = 5000;
const LONGEST_PAUSE_MS = 1000;

/** Sends requests. Each request may be repeated, so its sender must recognise the write of an earlier try. */
export class RequestSender {
  readonly #client: DynamoClient;
  readonly #table: string;
  readonly #clock: ServiceClock;

  constructor(client: DynamoClient, table: string, clock: ServiceClock) {
    this.#client = client;
    this.#table = table;
    this.#clock = clock;
  }

  /**
   * Sends a request. After throttling, after a fault of the service, and if no answer comes, it sends the request again, with
   * growing pauses, while there is time.
   * @throws ConditionRefusal, Throttled, ConnectionFailed, DatabaseError, SchemaMismatch
   */
  async send(operation: Operation, input: object, { timeoutMs, signal }: CallLimits): Promise<Reply> {
    const call = { operation, table: this.#table };
    const start = moment();
    let isRepeated = false;
    let doubt: ConnectionFailed | undefined;
    let answer: Error | undefined;
    for (let tries = 0; ; tries++) {
      const leftMs = timeoutMs - waitedFor(start);
      const tryMs = Math.min(Math.max(leftMs / 2, SHORTEST_TRY_MS), LONGEST_TRY_MS, Math.max(leftMs, 1));
      try {
        const output = await this.#try(call, input, tryMs, signal);
        return { output, isRepeated: isRepeated || attemptsOf(output) > 1 };
      } catch (error) {
        if (isRefusal(error)) throw new ConditionRefusal(itemOf(error), isRepeated || attemptsOf(error) > 1);
        const known = failure(error, call);
        const pauseMs = Math.min(25 * 2 ** tries, LONGEST_PAUSE_MS) * (0.5 + 0.5 * Math.random());
        // A last try of a few milliseconds would only fail for lack of time.
        const lastMs = Math.min(timeoutMs / 10, SHORTEST_TRY_MS);
        const isOver = waitedFor(start) + pauseMs + lastMs >= timeoutMs || signal?.aborted === true;
        if (!isTransient(known)) throw known;
        if (isOver) throw overall(known, known instanceof NoAnswer ? answer : doubt);
        if (isUncertain(known)) doubt = known;
        if (!(known instanceof NoAnswer)) answer = known;
        isRepeated = doubt !== undefined;
        await sleep(pauseMs, signal);
      }
    }
  }

  /**
   * Sends a request once. The caller waits no longer than the time of the try, whatever the SDK does with the signal. This is not
   * Promise.race, which took twice as long with its listeners.
   */
  #try(
    { operation, table }: { readonly operation: Operation; readonly table: string },
    input: object,
    tryMs: number,
    signal: AbortSignal | undefined,
  ): Promise<Record<string, unknown>> {
    return new Promise((resolve, reject) => {
      const over = new AbortController();
      const giveUp = (): void => {
        end();
        over.abort();
        reject(new NoAnswer(`${operation} on table "${table}" got no answer within ${Math.round(tryMs)} ms`));
      };
      const cancel = after(tryMs, giveUp);
      const end = (): void => {
        cancel();
        signal?.removeEventListener('abort', giveUp);
      };
      signal?.addEventListener('abort', giveUp, { once: true });
      this.#send(operation, input, over.signal).finally(end).then(resolve, reject);
      if (signal?.aborted) giveUp();
    });
  }

  async #send(operation: Operation, input: object, abortSignal: AbortSignal): Promise<Record<string, unknown>> {
    const commands = loaded ?? (await loadCommands());
    const command = new commands[`${operation}Command`](input);
    if (this.#clock.isCurious) command.middlewareStack.add(this.#listenFrom(now()), LISTENING);
    return (await this.#client.send(command as never, { abortSignal } as never)) as Record<string, unknown>;
  }

  /** Reads the service's time from its answer. */
  #listenFrom(sentAt: number): Middleware {
    return (next) => async (args) => {
      const result = await next(args);
      const headers = isObject(result.response) ? result.response['headers'] : undefined;
      const date = isObject(headers) ? headers['date'] : undefined;
      if (typeof date === 'string') this.#clock.observe(date, sentAt);
      return result;
    };
  }
}

/** The time of a try is over. Callers see it as a ConnectionFailed. */
class NoAnswer extends ConnectionFailed {
  override readonly name = 'ConnectionFailed';
}

function isUncertain(error: unknown): error is ConnectionFailed {
  return error instanceof ConnectionFailed && error.outcome === 'unknown';
}

/**
 * The error for all tries. The error of the last try alone may be misleading: it may say that nothing was written, although an
 * earlier try may have been carried out; or it may only say that its time was over, which may have been short.
 */
function overall(last: Transient, earlier: Error | undefined): Transient {
  if (earlier === undefined || (isUncertain(last) && !(last instanceof NoAnswer))) return last;
  return new ConnectionFailed(`${last.message}; before that, ${earlier.message}`, { cause: last.cause ?? earlier });
}

/** At this step the SDK has the answer, but has not parsed it. */
const LISTENING = { step: 'deserialize', priority: 'low', name: 'pawlServiceClock' };

/** A command of the SDK. Every command has a stack of middleware, to which users may add. */
interface Command {
  readonly middlewareStack: { add(middleware: Middleware, options: object): void };
}

type Middleware = (next: Handler) => Handler;
type Handler = (args: unknown) => Promise<{ readonly response: unknown }>;

/** The commands by name; the SDK has a type of its own for each. */
type Commands = Readonly<Record<`${Operation}Command`, new (input: object) => Command>>;

let loaded: Commands | undefined;

/** Loads an optional peer dependency. A program with a DynamoDBClient has it. @throws NotSupported  if it is missing */
async function loadCommands(): Promise<Commands> {
  const sdk: unknown = await import('@aws-sdk/client-dynamodb').catch((error: unknown) => {
    throw new NotSupported('pawl/dynamodb needs the package @aws-sdk/client-dynamodb, version 3', { cause: error });
  });
  loaded = sdk as Commands;
  return loaded;
}

function itemOf(error: unknown): unknown {
  return error instanceof Error ? Reflect.get(error, 'Item') : undefined;
}
