import type * as AwsSdk from '@aws-sdk/client-s3';
import { InvalidInput, NotSupported } from '../../base/errors.ts';
import { bool, checkOptions, integer, object, optional, text } from '../../base/options/options.ts';
import { isObject } from '../../base/options/shape.ts';
import type { Content, TransferLimits } from '../content.ts';
import type { S3Api, S3Operation, S3Output, S3SendOptions } from './api.ts';
import { S3Content } from './content.ts';
import { s3Failure } from './failure.ts';

/** Where a bucket is. Missing options come from the environment, as with other AWS programs. */
export interface S3Options {
  readonly bucket: string;
  /** The prefix of every key, without the slash that follows it. Use one prefix for each namespace. Default: none. */
  readonly prefix?: string | undefined;
  /** The URL of a store that is not Amazon's. */
  readonly endpoint?: string | undefined;
  readonly region?: string | undefined;
  readonly credentials?:
    | {
        readonly accessKeyId: string;
        readonly secretAccessKey: string;
        readonly sessionToken?: string | undefined;
      }
    | undefined;
  /** Puts the bucket into the path instead of the host name. Default: true when there is an endpoint. */
  readonly pathStyle?: boolean | undefined;
  /** Connections to the store, at most. Default 32. */
  readonly sockets?: number | undefined;
}

/**
 * A content store in an S3 bucket, of Amazon or of another store that speaks S3. Needs the package `@aws-sdk/client-s3`,
 * version 3; it has a client and connections of its own.
 * @throws InvalidInput
 */
export function s3(options: S3Options): Content {
  const checked = parse(options);
  const { bucket, prefix } = checked;
  const api = new SdkApi(checked);
  return Object.assign(new S3Content(api, prefix === '' ? bucket : `${bucket}/${prefix}`), {
    useBudget: (budget: TransferLimits) => api.useBudget(budget),
  });
}

function parse(options: S3Options) {
  return checkOptions('s3', withoutMarks(options), {
    bucket: text({ min: 3, max: 255, pattern: [/^[\w.:/-]+$/, 'the name of a bucket'] }),
    prefix: text({ max: 512, pattern: [/^[^/]?$|^[^/].*[^/]$/, 'a prefix without a slash at its ends'], default: '' }),
    endpoint: optional(text({ pattern: [/^https?:\/\//, 'a URL such as https://s3.example.org'] })),
    region: optional(text({ min: 1, max: 100 })),
    credentials: optional(
      object({
        accessKeyId: text({ min: 1 }),
        secretAccessKey: text({ min: 1, secret: true }),
        sessionToken: optional(text({ min: 1, secret: true })),
      }),
    ),
    pathStyle: optional(bool()),
    sockets: integer({ min: 1, max: 10_000, default: 32 }),
  });
}

type Sdk = typeof AwsSdk;
type S3Settings = ReturnType<typeof parse>;

/** The part of the SDK's commands that is used here; the SDK has a separate type for each. */
interface Command {
  readonly middlewareStack: { add(middleware: Middleware, options: object): void };
}
type Handler = (args: { readonly request: unknown }) => Promise<unknown>;
type Middleware = (next: Handler) => Handler;

/** Sends requests through the SDK, each of them once: the caller knows whether a request may be repeated. */
class SdkApi implements S3Api {
  readonly bucket: string;
  readonly prefix: string;
  readonly #options: S3Settings;
  #budget: TransferLimits | undefined;
  #opening: Promise<{ readonly sdk: Sdk; readonly client: InstanceType<Sdk['S3Client']> }> | undefined;

  constructor(options: S3Settings) {
    this.#options = options;
    this.bucket = options.bucket;
    this.prefix = options.prefix === '' ? '' : `${options.prefix}/`;
  }

  useBudget(budget: TransferLimits): void {
    this.#budget = budget;
  }

  async send(operation: S3Operation, input: object, { signal, payload }: S3SendOptions): Promise<S3Output> {
    signal.throwIfAborted();
    const where = `${operation} in bucket "${this.bucket}"`;
    this.#opening ??= this.#open();
    const { sdk, client } = await this.#opening;
    const Request = sdk[`${operation}Command`] as unknown as new (input: object) => Command;
    const command = new Request(input);
    if (payload !== undefined) command.middlewareStack.add(signedAs(payload), { step: 'build', name: 'pawlPayload' });
    try {
      const output: unknown = await client.send(command as never, { abortSignal: signal } as never);
      return isObject(output) ? output : {};
    } catch (error) {
      signal.throwIfAborted();
      throw s3Failure(error, where);
    }
  }

  stop(): void {
    this.#opening?.then(({ client }) => client.destroy()).catch(() => {});
    this.#opening = undefined;
  }

  async #open(): Promise<{ readonly sdk: Sdk; readonly client: InstanceType<Sdk['S3Client']> }> {
    const sdk = await import('@aws-sdk/client-s3').catch((error: unknown) => {
      throw new NotSupported('s3() needs the package @aws-sdk/client-s3; npm install @aws-sdk/client-s3@3', {
        cause: error,
      });
    });
    const { region, endpoint, credentials, pathStyle, sockets } = this.#options;
    const agent = { keepAlive: true, maxSockets: sockets };
    const { connectMs = 5000 } = this.#budget ?? {};
    const client = new sdk.S3Client({
      ...(region !== undefined && { region }),
      ...(endpoint !== undefined && { endpoint, region: region ?? 'us-east-1' }),
      ...(credentials !== undefined && { credentials: keysOf(credentials) }),
      forcePathStyle: pathStyle ?? endpoint !== undefined,
      maxAttempts: 1,
      // Without a logger the SDK writes errors to standard error; here they are thrown as typed errors.
      logger: SILENT,
      // This code gives a checksum with each request, and checks each answer itself.
      requestChecksumCalculation: 'WHEN_REQUIRED',
      responseChecksumValidation: 'WHEN_REQUIRED',
      requestHandler: { connectionTimeout: connectMs, httpAgent: agent, httpsAgent: agent },
    });
    return { sdk, client };
  }
}

const nothing = (): void => {};
const SILENT = { trace: nothing, debug: nothing, info: nothing, warn: nothing, error: nothing };

/** The SDK writes marks such as `$source` into the credentials that a program passes. */
function withoutMarks(options: S3Options): unknown {
  if (!isObject(options) || !isObject(options.credentials)) return options;
  const own = Object.entries(options.credentials).filter(([name]) => !name.startsWith('$'));
  return { ...options, credentials: Object.fromEntries(own) };
}

function keysOf({ accessKeyId, secretAccessKey, sessionToken }: NonNullable<S3Settings['credentials']>): {
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string;
} {
  return { accessKeyId, secretAccessKey, ...(sessionToken !== undefined && { sessionToken }) };
}

/** Passes on the known hash of the body, so that signing need not compute it again. */
function signedAs(payload: string): Middleware {
  return (next) => (args) => {
    const headers: unknown = Reflect.get(Object(args.request), 'headers');
    if (!(headers instanceof Object)) throw new InvalidInput('the SDK made a request without headers');
    Reflect.set(headers, 'x-amz-content-sha256', payload);
    return next(args);
  };
}
