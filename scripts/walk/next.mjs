// Builds the app of docs/deployment.md with Next, without a database, and starts it with one.
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { emptyFolder, environment, install, isOffered, root, run, step } from './step.mjs';

const NEXT = 'next@16';
const TOKEN = 'a-token-for-this-walk-alone';

export async function walkWithNext(packed) {
  if (!(await isOffered('Next', NEXT))) return;
  const here = emptyFolder('next');
  writeApp(here);
  await step(`${NEXT}, installed`, () => install(here, packed, NEXT, 'react', 'react-dom'));
  await step('next build', () => run('npx', ['next', 'build'], here, { NEXT_TELEMETRY_DISABLED: '1' }));
  await step('next start', () => withDatabase((url) => withServer(here, url, askApp)));
}

/** Writes the files that the document shows. */
function writeApp(here) {
  const text = readFileSync(join(root, 'docs/deployment.md'), 'utf8');
  const files = [...text.matchAll(/^```js walk (\S+)\n([^]*?)^```$/gm)];
  if (files.length < 4) throw new Error('docs/deployment.md shows fewer files of Next than it did');
  for (const [, path, code] of files) {
    mkdirSync(dirname(join(here, path)), { recursive: true });
    writeFileSync(join(here, path), code);
  }
}

async function askApp(address) {
  const { id } = await (await fetch(`${address}/receipts`, { method: 'POST', body: '{"to":"ada"}' })).json();
  const headers = { authorization: `Bearer ${TOKEN}` };
  const job = await (await fetch(`${address}/pawl/api/v1/jobs/${id}`, { headers })).json();
  if (job.kind !== 'receipt') throw new Error(`the API shows job ${id} as ${JSON.stringify(job)}`);
  const page = await (await fetch(`${address}/pawl/`)).text();
  if (!page.includes('<title>Pawl')) throw new Error(`the dashboard begins with ${page.slice(0, 200)}`);
}

async function withDatabase(use) {
  const { startEmbedded } = await import('../../dist/engine/postgres/embedded/index.js');
  const { postgres } = await import('../../dist/engine/postgres/index.js');
  const server = await startEmbedded();
  try {
    const engine = postgres(server.url);
    await engine.migrate();
    await engine.stop();
    await use(server.url);
  } finally {
    await server.stop();
  }
}

async function withServer(here, url, use) {
  const port = await freePort();
  // Not started by npx, which would end before its child.
  const next = join(here, 'node_modules/next/dist/bin/next');
  const server = spawn(process.execPath, [next, 'start', '--port', String(port)], {
    cwd: here,
    env: environment({ DATABASE_URL: url, PAWL_TOKEN: TOKEN, NEXT_TELEMETRY_DISABLED: '1' }),
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise((resolve) => server.once('exit', resolve));
  try {
    await isReady(server, ended);
    await use(`http://127.0.0.1:${port}`);
  } finally {
    server.kill();
    await ended;
  }
}

function isReady(server, ended) {
  let text = '';
  return new Promise((resolve, reject) => {
    server.stdout.on('data', (chunk) => {
      text += chunk;
      if (text.includes('Ready')) resolve();
    });
    void ended.then(() => reject(new Error(`next start has ended: ${text}`)));
  });
}

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}
