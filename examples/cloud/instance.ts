// An instance: a real HTTP server in a process of its own, which knows nothing of the control plane. It ends with the process
// that started it, so that a control plane that is killed leaves nothing behind.
import { createServer } from 'node:http';

let config: unknown = null;

const server = createServer((request, response) => {
  let body = '';
  request.on('data', (part: Buffer) => {
    body += part.toString();
  });
  request.on('end', () => {
    if (request.method === 'PUT') config = JSON.parse(body);
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ pid: process.pid, config }));
  });
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  if (typeof address === 'object' && address !== null) process.send?.({ port: address.port });
});
process.on('disconnect', () => process.exit(0));
