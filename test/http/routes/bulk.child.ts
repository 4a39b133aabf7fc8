import { postgres } from '../../../src/engine/postgres/index.ts';
import { createHttp } from '../../../src/http/index.ts';
import { OPEN_DOOR } from '../../support/servers/open-door.ts';

// A process that serves HTTP, is asked for a bulk action, and is killed where PAWL_FAULT says.
const engine = postgres(process.argv[2] ?? '');
const pawl = createHttp(engine, { auth: OPEN_DOOR });
const body = JSON.stringify({ action: 'cancel', query: 'bulkword', reason: 'not needed' });
const request = new Request('http://localhost/api/v1/bulk', {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body,
});
const response = await pawl(request, { remoteAddress: '127.0.0.1' });
await response.text();
setInterval(() => {}, 2 ** 30);
