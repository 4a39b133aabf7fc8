import { Readable } from 'node:stream';
import { isDeepStrictEqual } from 'node:util';
import { isObject } from '../../base/options/shape.ts';
import type { Answer, Arguments, Command, Handler, Middleware, MiddlewareStack } from './middleware.ts';

/** Operations whose input and output are the very JSON that is sent. */
const AS_JSON: ReadonlySet<string> = new Set(['GetItem', 'UpdateItem', 'DeleteItem', 'Query']);

/** What the SDK has between an input and its request, and between an answer and its output: all that is left out. */
const KNOWN = /^(httpAuthScheme|endpointV2|serializer|deserializer)Middleware /;
const BETWEEN = / - (serialize|deserialize|before .*|after (?!retryMiddleware).*)$/;

/** A request of the SDK, as far as copying it goes. */
interface Template {
  body: unknown;
  readonly headers: Readonly<Record<string, string>>;
  clone(): Template;
}

/**
 * The SDK writes a request member by member, from a schema, resolves endpoint and credentials for it, and reads the answer so:
 * a quarter of what a request takes in this process. But what goes over the wire is the same JSON as what went in. So the first
 * request of a stack is the SDK's. If its body says just what went in, those after it are copies with another body, and an
 * answer of status 200 is parsed here. Any other answer is read by the SDK, so errors are its own; and where anybody has put
 * middleware in between, the SDK does everything.
 */
export class Wire {
  #isAllowed = false;
  #template: Template | undefined;
  /** What is to be read by the SDK after all. */
  #answer: Answer | undefined;

  static isFor(operation: string): boolean {
    return AS_JSON.has(operation);
  }

  /**
   * Has a command put together with this around what the SDK has at these two steps. The command itself stays as it was: who
   * sends it again by another way has nothing of this.
   */
  putInto({ middlewareStack: own }: Command, client: MiddlewareStack, putTogether: () => unknown): unknown {
    let send: Handler | undefined;
    let transport: Handler | undefined;
    const add = (step: string, priority: string, name: string, middleware: Middleware): void =>
      own.add(middleware, { step, priority, name });
    add('serialize', 'high', 'pawlWrite', (next) => (args) => this.#write(args, next, send));
    add('serialize', 'low', 'pawlLearn', (next) => {
      send = next;
      return (args) => this.#learn(args, next);
    });
    add('deserialize', 'high', 'pawlRead', (next) => (args) => this.#read(args, next, transport));
    add('deserialize', 'low', 'pawlHand', (next) => {
      transport = next;
      return (args) => this.#hand(args, next);
    });
    const handler = putTogether();
    for (const name of ['pawlWrite', 'pawlLearn', 'pawlRead', 'pawlHand']) own.remove(name);
    const names = client.concat(own).identify();
    this.#isAllowed = names.every((each) => !BETWEEN.test(each) || KNOWN.test(each));
    return handler;
  }

  #write(args: Arguments, next: Handler, send: Handler | undefined): Promise<Answer> {
    if (this.#template === undefined || send === undefined) return next(args);
    const request = this.#template.clone();
    request.body = JSON.stringify(args.input);
    return send({ ...args, request });
  }

  #learn(args: Arguments, next: Handler): Promise<Answer> {
    const { request, input } = args;
    if (this.#isAllowed && isTemplate(request) && saysTheSame(request, input)) this.#template = request.clone();
    return next(args);
  }

  async #read(args: Arguments, next: Handler, transport: Handler | undefined): Promise<Answer> {
    if (this.#template === undefined || transport === undefined) return next(args);
    const answer = await transport(args);
    const output = await outputOf(answer.response);
    if (output !== undefined) return { ...answer, output };
    this.#answer = answer;
    return next(args);
  }

  async #hand(args: Arguments, next: Handler): Promise<Answer> {
    const answer = this.#answer;
    this.#answer = undefined;
    return answer ?? next(args);
  }
}

function isTemplate(request: unknown): request is Template {
  return isObject(request) && typeof request['clone'] === 'function' && isObject(request['headers']);
}

function saysTheSame({ headers, body }: Template, input: unknown): boolean {
  if (headers['content-type'] !== 'application/x-amz-json-1.0') return false;
  const written = body instanceof Uint8Array ? new TextDecoder().decode(body) : body;
  return typeof written === 'string' && isDeepStrictEqual(parsed(written), parsed(JSON.stringify(input)));
}

/** @returns undefined when the SDK has to read it */
async function outputOf(response: unknown): Promise<Record<string, unknown> | undefined> {
  if (!isObject(response) || response['statusCode'] !== 200) return undefined;
  const { body, headers } = response;
  if (!(body instanceof Readable) || !isObject(headers)) return undefined;
  const written = await readAll(body);
  const output = parsed(written);
  if (!isObject(output)) {
    Object.assign(response, { body: Buffer.from(written) });
    return undefined;
  }
  const $metadata = {
    httpStatusCode: 200,
    requestId: headers['x-amzn-requestid'],
    extendedRequestId: headers['x-amz-id-2'],
    cfId: headers['x-amz-cf-id'],
  };
  return { ...output, $metadata };
}

function readAll(stream: Readable): Promise<string> {
  return new Promise((resolve, reject) => {
    let all = '';
    stream.setEncoding('utf8');
    stream.on('data', (part: string) => {
      all += part;
    });
    stream.once('end', () => resolve(all));
    stream.once('error', reject);
  });
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
