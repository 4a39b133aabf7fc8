import type { AddressInfo } from 'node:net';
import { serve } from '@hono/node-server';
import { stopWhenTold, tellParent } from '../child-process.ts';
import { openStore } from './open-store.ts';
import { routes } from './routes.ts';
import { readFrontEnd } from './settings.ts';
import { makeFolder } from './workbook.ts';

// node dist-examples/spreadsheets/front-end.js
const { place, port, ...settings } = readFrontEnd();
const store = await openStore(place, 'spreadsheets front end');
await makeFolder(settings.folder);

const app = routes({ store, ...settings });
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
  await store.stop();
});
