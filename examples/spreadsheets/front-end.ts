import type { AddressInfo } from 'node:net';
import { serve } from '@hono/node-server';
import { postgres } from 'pawl/postgres';
import { stopWhenTold, tellParent } from '../child-process.ts';
import { routes } from './routes.ts';
import { readFrontEnd } from './settings.ts';
import { createTables } from './postgres/table.ts';
import { makeFolder } from './workbook.ts';

// node dist-examples/spreadsheets/front-end.js
const { databaseUrl, port, ...settings } = readFrontEnd();
const engine = postgres(databaseUrl, { applicationName: 'spreadsheets front end' });
await engine.migrate();
await createTables(engine);
await makeFolder(settings.folder);

const app = routes({ engine, ...settings });
const server = serve({ fetch: app.fetch, hostname: '127.0.0.1', port }, onListening);

function onListening({ port: listening }: AddressInfo): void {
  const url = `http://127.0.0.1:${listening}`;
  console.log(`front end ${process.pid} listens on ${url}`);
  tellParent({ ready: true, url });
}

stopWhenTold(async () => {
  await new Promise<void>((resolve) => {
    server.close(() => resolve());
    if ('closeIdleConnections' in server) server.closeIdleConnections();
  });
  await engine.stop();
});
