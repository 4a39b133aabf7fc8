import { setTimeout as sleep } from 'node:timers/promises';
import type { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import type { DynamoClient } from '../../../src/engine/dynamodb/index.ts';

/** What becomes of one request. */
export type Fault =
  | 'pass'
  /** It never arrives. */
  | 'drop request'
  /** It is carried out, but its answer is lost. */
  | 'drop answer'
  /** It is carried out twice; the client receives the second answer. */
  | 'duplicate'
  | 'throttle'
  /** It fails inside the service, before it is carried out, or after that. */
  | 'server error'
  | 'late server error'
  /** It never arrives, and the client receives this instead. */
  | { readonly answer: object }
  /** It arrives late. */
  | { readonly delayMs: number }
  /** It arrives when that is done. */
  | { readonly after: Promise<unknown> };

/** A request, as the function that chooses its fault sees it. */
export interface Request {
  /** `UpdateItem` and so on. */
  readonly operation: string;
  /** `head`, or that of a waiter; empty for several. */
  readonly sk: string;
  readonly input: Record<string, unknown>;
  /** Its condition and update with the names put in: to be searched. */
  readonly text: string;
}

/** The partitions that a request reads or writes. */
export function partitionsOf({ input }: Request): readonly string[] {
  const found = JSON.stringify(input).matchAll(/"pk":\{"S":"([^"]*)"\}|":pk":\{"S":"([^"]*)"\}/g);
  return [...found].map(([, inKey, inQuery]) => inKey ?? inQuery ?? '');
}

/** A client that fails the way networks and services do. */
export function faultyClient(client: DynamoDBClient, choose: (request: Request) => Fault): DynamoClient {
  const send = async (command: { readonly input: Record<string, unknown> }, options: unknown): Promise<unknown> => {
    // The SDK's client takes any of its commands; of these it is one.
    const pass = (): Promise<unknown> => client.send(command as never, options as never);
    const fault = choose(requestOf(command));
    if (fault === 'pass') return pass();
    if (fault === 'drop request') throw lost();
    if (fault === 'throttle') throw throttled();
    if (fault === 'late server error') await pass().catch(() => {});
    if (fault === 'server error' || fault === 'late server error') throw broken();
    if (fault === 'drop answer') {
      await pass().catch(() => {});
      throw lost();
    }
    if (fault === 'duplicate') {
      await pass().catch(() => {});
      const again = await pass().catch(withTwoAttempts);
      return again;
    }
    if ('answer' in fault) return fault.answer;
    await ('after' in fault ? fault.after : sleep(fault.delayMs));
    // It is under way: that its sender has given it up meanwhile does not stop it.
    return client.send(command as never);
  };
  return { send: send as DynamoClient['send'] };
}

/** A client whose conditions always hold: as a careless hand would have it. */
export function carelessClient(client: DynamoDBClient): DynamoClient {
  const send = (command: { readonly input: Record<string, unknown> }, options: unknown): Promise<unknown> => {
    const { ConditionExpression: condition } = command.input as Record<string, string>;
    if (condition !== undefined)
      command.input['ConditionExpression'] = `(${condition}) OR attribute_not_exists(nothing)`;
    return client.send(command as never, options as never);
  };
  return { send: send as DynamoClient['send'] };
}

/** Mostly none; the same for the same seed and the same requests. */
export function seededFaults(seed: number): (request: Request) => Fault {
  let state = seed;
  const random = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    return (state >>> 0) / 2 ** 32;
  };
  return () => {
    const at = random();
    if (at < 0.02) return 'drop request';
    if (at < 0.05) return 'drop answer';
    if (at < 0.07) return 'duplicate';
    if (at < 0.09) return 'throttle';
    return at < 0.2 ? { delayMs: Math.floor(random() * 40) } : 'pass';
  };
}

function requestOf(command: { readonly input: Record<string, unknown> }): Request {
  const { input } = command;
  const names = Object.entries((input['ExpressionAttributeNames'] ?? {}) as Record<string, string>);
  const { UpdateExpression = '', ConditionExpression = '' } = input as Record<string, string>;
  let text = `${UpdateExpression} IF ${ConditionExpression}`;
  for (const [place, name] of names.toReversed()) text = text.replaceAll(place, name);
  const key = input['Key'] as { sk?: { S?: string } } | undefined;
  return { operation: command.constructor.name.replace(/Command$/, ''), sk: key?.sk?.S ?? '', input, text };
}

function lost(): Error {
  return Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
}

function throttled(): Error {
  return Object.assign(new Error('too many requests'), {
    name: 'ThrottlingException',
    $fault: 'client',
    $metadata: { httpStatusCode: 400, requestId: 'injected', attempts: 1 },
  });
}

function broken(): Error {
  return Object.assign(new Error('internal server error'), {
    name: 'InternalServerError',
    $fault: 'server',
    $metadata: { httpStatusCode: 500, requestId: 'injected', attempts: 1 },
  });
}

/** As the SDK tells it when it has tried twice. */
function withTwoAttempts(error: unknown): never {
  if (error instanceof Error) {
    const metadata: unknown = Reflect.get(error, '$metadata');
    Object.assign(error, { $metadata: { ...(metadata as object), attempts: 2 } });
  }
  throw error;
}
