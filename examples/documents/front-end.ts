// A front end of the documents, one of any number: pull with GET, push with PUT and the version one has pulled.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { NotFound, VersionConflict } from 'pawl';
import { postgres } from 'pawl/postgres';
import { stopWhenTold, tellParent } from '../child-process.ts';
import { openDocuments } from './store.ts';

const { DATABASE_URL = '', DOCUMENTS_DIR = '' } = process.env;
const engine = postgres(DATABASE_URL, { max: 4, applicationName: 'documents front end' });
const files = openDocuments(engine, DOCUMENTS_DIR);

async function pull(id: string, response: ServerResponse): Promise<void> {
  const { version, stream } = await files.read(id);
  response.writeHead(200, {
    'content-length': version.size,
    'x-version': version.version,
    etag: `"${version.sha256}"`,
  });
  await pipeline(stream, response);
}

/** No connection to the database is held while the client sends. */
async function push(id: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const ifVersion = Number(request.headers['x-version'] ?? 0);
  tellParent({ writing: id });
  const { version } = await files.write(id, request, {
    ifVersion,
    author: String(request.headers['x-client']),
  });
  tellParent({ wrote: id });
  response.writeHead(200, { 'x-version': version }).end();
}

function refuse(error: unknown, response: ServerResponse): void {
  if (response.headersSent) return void response.destroy();
  const status = error instanceof VersionConflict ? 409 : error instanceof NotFound ? 404 : 503;
  response
    .writeHead(status, { 'content-type': 'text/plain' })
    .end(error instanceof Error ? error.message : String(error));
}

const server = createServer((request, response) => {
  const id = decodeURIComponent((request.url ?? '/').slice(1));
  const work = request.method === 'PUT' ? push(id, request, response) : pull(id, response);
  work.catch((error: unknown) => refuse(error, response));
});
server.listen(Number(process.env['PORT'] ?? 0), '127.0.0.1', () => {
  const address = server.address();
  tellParent({ ready: true, port: typeof address === 'object' ? address?.port : undefined });
});
stopWhenTold(async () => {
  server.closeAllConnections();
  server.close();
  await files.stop();
  await engine.stop();
});
