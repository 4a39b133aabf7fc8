import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { gzipSync } from 'node:zlib';
import { bool, checkOptions, integer, oneOf, text } from '../../base/options/options.ts';
import { after } from '../../base/time/clock.ts';
import type { S3Object } from './objects.ts';
import { S3Refusal } from './refusal.ts';
import { type S3Answer, type S3Request, S3Service } from './service.ts';

/** Weaknesses of a store. */
export interface FaultyStoreOptions {
  /** Default `pawl-test`. */
  readonly bucket?: string | undefined;
  /** True: it ignores If-None-Match and If-Match, as some stores do. Default false. */
  readonly ignoreConditions?: boolean | undefined;
  /** True: it ignores checksums. Default false. */
  readonly ignoreChecksums?: boolean | undefined;
}

/**
 * A fault of a request.
 *
 * - `lose_answer`: the request is carried out, and the connection is cut before the answer
 * - `cut`: the connection is cut before the request is carried out
 * - `delay`: the request is carried out `ms` after it came, even if the caller no longer waits for the answer
 * - `hang`: the request is never answered
 * - `unavailable`: 503 SlowDown
 * - `conflict`: 409, another request is under way
 * - `error_in_200`: 200, and an error in the body
 * - `short`: the body ends before its length is reached; `short_body`: the body has another length, and its header says so
 * - `flip`: one bit of the body is flipped
 * - `gzip`: the body is compressed, as by a proxy
 * - `trickle`: one byte every `ms`
 */
export type StoreFault =
  | 'lose_answer'
  | 'cut'
  | 'delay'
  | 'hang'
  | 'unavailable'
  | 'conflict'
  | 'error_in_200'
  | 'short'
  | 'short_body'
  | 'flip'
  | 'gzip'
  | 'trickle';

/** The requests that get a fault. */
export interface FaultOptions {
  /** The name of S3's operation: `PutObject`. Default: any. */
  readonly operation?: string | undefined;
  /** A part of the key of the request. Default: any. */
  readonly key?: string | undefined;
  /** How often the fault occurs. Default: until it is lifted. */
  readonly times?: number | undefined;
  /** The time for `delay` and `trickle`. Default 1000. */
  readonly ms?: number | undefined;
}

const FAULTS: readonly StoreFault[] = [
  'lose_answer',
  'cut',
  'delay',
  'hang',
  'unavailable',
  'conflict',
  'error_in_200',
  'short',
  'short_body',
  'flip',
  'gzip',
  'trickle',
];

interface ActiveFault {
  readonly fault: StoreFault;
  readonly operation: string;
  readonly key: string;
  readonly ms: number;
  left: number;
}

/**
 * Starts a store that speaks S3, in this process and in memory, for tests of programs that use one. It checks signatures,
 * conditions and checksums as S3 does, has uploads in parts, and fails as a test requests.
 * `s3({ ...store.connection, prefix: 'x' })` is a content store on it.
 */
export async function faultyStore(options?: FaultyStoreOptions): Promise<FaultyStore> {
  const checked = checkOptions('faultyStore', options, {
    bucket: text({ min: 3, max: 63, default: 'pawl-test' }),
    ignoreConditions: bool({ default: false }),
    ignoreChecksums: bool({ default: false }),
  });
  const keys = { accessKeyId: 'pawl-test-key', secretAccessKey: 'pawl-test-secret' };
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const connection = {
    bucket: checked.bucket,
    endpoint: `http://127.0.0.1:${port}`,
    region: 'us-east-1',
    credentials: keys,
  };
  return new FaultyStore(server, new S3Service({ ...checked, keys }), connection);
}

/** A running store; made by {@link faultyStore}. */
export class FaultyStore implements AsyncDisposable {
  /** The options of a client for this store. */
  readonly connection: {
    readonly bucket: string;
    readonly endpoint: string;
    readonly region: string;
    readonly credentials: { readonly accessKeyId: string; readonly secretAccessKey: string };
  };
  /** Every request so far, with its operation and key. */
  readonly log: { readonly operation: string; readonly key: string }[] = [];
  readonly #server: Server;
  readonly #service: S3Service;
  readonly #faults = new Set<ActiveFault>();
  readonly #timers = new Set<() => void>();

  /** @internal */
  constructor(server: Server, service: S3Service, connection: FaultyStore['connection']) {
    this.#server = server;
    this.#service = service;
    this.connection = connection;
    server.on('request', (message: IncomingMessage, response: ServerResponse) => void this.#serve(message, response));
    // A test that ends in the middle of a request must not wait for it.
    server.keepAliveTimeout = 60_000;
  }

  /** The objects in the bucket, for reading and for tampering. */
  get objects(): Map<string, S3Object> {
    return this.#service.objects.all;
  }

  /** Stores an object, bypassing all checks. */
  put(key: string, body: Buffer): void {
    this.#service.objects.put(key, body);
  }

  /** Uploads in parts that are neither complete nor aborted: the key of each. */
  get unfinished(): string[] {
    return [...this.#service.objects.uploads.values()].map((upload) => upload.key);
  }

  /** Connections open now. */
  connections(): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.getConnections((error, count) => (error ? reject(error) : resolve(count)));
    });
  }

  /** Makes requests fail from now on. @returns a function that lifts the fault */
  fault(fault: StoreFault, options?: FaultOptions): () => void {
    const { times, ...which } = checkOptions('fault', options, {
      operation: text({ default: '' }),
      key: text({ default: '' }),
      times: integer({ min: 1, default: Number.MAX_SAFE_INTEGER }),
      ms: integer({ min: 0, default: 1000 }),
    });
    const armed: ActiveFault = {
      fault: oneOf(FAULTS).given(fault, { field: 'fault', what: 'fault' }),
      ...which,
      left: times,
    };
    this.#faults.add(armed);
    return () => void this.#faults.delete(armed);
  }

  /** Lifts all faults. */
  mend(): void {
    this.#faults.clear();
  }

  async stop(): Promise<void> {
    for (const cancel of this.#timers) cancel();
    if (!this.#server.listening) return;
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #serve(message: IncomingMessage, response: ServerResponse): Promise<void> {
    response.on('error', () => {});
    try {
      const request = this.#service.read(message);
      const armed = this.#meet(request);
      const body = await this.#service.body(request);
      this.log.push({ operation: request.operation, key: request.key });
      if (armed === undefined) return send(response, this.#service.perform(request, body));
      this.#fail(armed, request, body, response);
    } catch (error) {
      if (response.destroyed) return;
      send(response, refused(error));
    }
  }

  #meet({ operation, key }: S3Request): ActiveFault | undefined {
    for (const armed of this.#faults) {
      const isMet = (armed.operation === '' || armed.operation === operation) && key.includes(armed.key);
      if (!isMet) continue;
      armed.left -= 1;
      if (armed.left === 0) this.#faults.delete(armed);
      return armed;
    }
    return undefined;
  }

  #fail({ fault, ms }: ActiveFault, request: S3Request, body: Buffer, response: ServerResponse): void {
    const perform = (): S3Answer => this.#service.perform(request, body);
    switch (fault) {
      case 'hang':
        return;
      case 'cut':
        return void response.destroy();
      case 'lose_answer':
        perform();
        return void response.destroy();
      case 'delay':
        return this.#later(ms, () => send(response, attempt(perform)));
      case 'unavailable':
        return send(response, refused(new S3Refusal(503, 'SlowDown', 'please reduce your request rate')));
      case 'conflict':
        return send(
          response,
          refused(new S3Refusal(409, 'ConditionalRequestConflict', 'another request is under way')),
        );
      case 'error_in_200': {
        const { body: error } = refused(new S3Refusal(500, 'InternalError', 'we encountered an internal error'));
        return send(response, { status: 200, headers: { 'content-length': String(error.length) }, body: error });
      }
      case 'trickle':
        return this.#trickle(perform(), ms, response);
      case 'short':
      case 'short_body':
      case 'flip':
      case 'gzip':
        return send(response, damaged(fault, perform()), fault === 'short');
    }
  }

  #trickle({ status, headers, body }: S3Answer, ms: number, response: ServerResponse): void {
    response.writeHead(status, headers);
    let at = 0;
    const next = (): void => {
      if (response.destroyed || at >= body.length) return void response.end();
      response.write(body.subarray(at, at + 1));
      at += 1;
      this.#later(ms, next);
    };
    next();
  }

  #later(ms: number, run: () => void): void {
    const cancel = after(ms, () => {
      this.#timers.delete(cancel);
      run();
    });
    this.#timers.add(cancel);
  }
}

function attempt(perform: () => S3Answer): S3Answer {
  try {
    return perform();
  } catch (error) {
    return refused(error);
  }
}

function refused(error: unknown): S3Answer {
  const refusal = error instanceof S3Refusal ? error : new S3Refusal(500, 'InternalError', String(error));
  const body = Buffer.from(refusal.toXml());
  const headers = { 'content-type': 'application/xml', 'content-length': String(body.length) };
  return { status: refusal.status, headers, body };
}

function damaged(fault: 'short' | 'short_body' | 'flip' | 'gzip', { status, headers, body }: S3Answer): S3Answer {
  if (fault === 'flip') {
    const other = Buffer.from(body);
    const middle = Math.floor(other.length / 2);
    other[middle] = (other[middle] ?? 0) ^ 1;
    return { status, headers, body: other };
  }
  if (fault === 'short') return { status, headers, body: body.subarray(0, Math.floor(body.length / 2)) };
  const other = fault === 'gzip' ? gzipSync(body) : body.subarray(0, -1);
  const encoding: Record<string, string> = fault === 'gzip' ? { 'content-encoding': 'gzip' } : {};
  return { status, headers: { ...headers, ...encoding, 'content-length': String(other.length) }, body: other };
}

function send(response: ServerResponse, { status, headers, body }: S3Answer, isCut = false): void {
  if (response.destroyed) return;
  response.writeHead(status, headers);
  if (!isCut) response.end(body);
  else response.write(body, () => response.destroy());
}
