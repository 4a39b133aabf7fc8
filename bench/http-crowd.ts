import { request as send } from 'node:http';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import type pg from 'pg';
import type { Context } from './harness/context.ts';
import { percentile } from './harness/figures.ts';

/** A new server, whose caches are empty. */
export interface Fresh {
  readonly ask: (path: string) => Promise<Response>;
  readonly stop: () => Promise<void>;
}

const QUEUES = 1000;

/** Adds a thousand queues with five jobs each to the database of the full queue. */
export async function addQueues(pool: pg.Pool): Promise<void> {
  await pool.query("insert into pawl.queue_definition (name) select 'queue-' || n from generate_series(1, $1::int) n", [
    QUEUES,
  ]);
  await pool.query(
    "insert into pawl.queue_kind (queue, name) select id, 'one' from pawl.queue_definition where name like 'queue-%'",
  );
  await pool.query(
    `select pawl.enqueue(jsonb_build_object('queue', 'queue-' || n, 'kind', 'one', 'payload', n))
    from generate_series(1, $1::int) n, generate_series(1, 5)`,
    [QUEUES],
  );
}

/** Empties the search index, as if no worker had indexed a job yet. */
export async function forgetWords(pool: pg.Pool): Promise<void> {
  await pool.query('truncate pawl.queue_search_chunk');
  await pool.query('update pawl.queue_search_state set sealed_to = 0, wait_to = null, wait_xid = null');
}

/** Milliseconds of each path on servers that were just started and have empty caches. */
export async function measureCold(
  { say }: Context,
  open: () => Fresh,
  paths: readonly string[],
  times: number,
): Promise<Record<string, number[]>> {
  const all: Record<string, number[]> = {};
  for (const path of paths) {
    const taken: number[] = [];
    // The first request does not count, because the connections read the catalog again after the changes before it.
    for (let n = -1; n < times; n += 1) {
      const { ask, stop } = open();
      const begin = performance.now();
      const response = await ask(path);
      const body = await response.text();
      if (n >= 0) taken.push(performance.now() - begin);
      if (!response.ok) throw new Error(`${path}: ${body}`);
      await stop();
    }
    all[path] = taken;
    say(`${path}: p50 ${percentile(taken, 50).toFixed(1)} ms, p95 ${percentile(taken, 95).toFixed(1)} ms`);
  }
  return all;
}

const HOSTILE = 300;
const LEGITIMATE = 600;
/** So the known caller sends forty requests a second, fewer than a caller's default limit. */
const PAUSE_MS = 25;

/**
 * How long a known caller waits for answers while strangers have 300 connections. A third of them send headers a byte at a time, a third
 * send a body that never ends, and a third send requests with an invalid token again and again. The strangers run in their own thread. The
 * server has its default limits.
 * @returns the 99th percentile without the strangers, and with them
 */
export async function measureStrangers(
  { say }: Context,
  url: string,
  headers: Readonly<Record<string, string>>,
): Promise<readonly [without: number, beside: number]> {
  await askOften(url, headers); // until the code is warm
  const without = percentile(await askOften(url, headers), 99);
  const worker = new Worker(new URL(import.meta.url), { workerData: { strangers: url } });
  await new Promise((resolve) => worker.once('message', resolve));
  const beside = percentile(await askOften(url, headers), 99);
  await worker.terminate();
  say(`p99 of somebody known: ${without.toFixed(2)} ms; next to ${HOSTILE} strangers ${beside.toFixed(2)} ms`);
  return [without, beside];
}

async function askOften(url: string, headers: Readonly<Record<string, string>>): Promise<number[]> {
  const taken: number[] = [];
  for (let n = 0; n < LEGITIMATE; n += 1) {
    const begin = performance.now();
    const response = await fetch(new URL('api/v1/me', url), { headers });
    await response.text();
    if (!response.ok) throw new Error(`somebody known was answered ${response.status}`);
    taken.push(performance.now() - begin);
    await sleep(PAUSE_MS);
  }
  return taken;
}

/** Runs in the thread of the strangers. */
async function beStrangers(url: string, isReady: () => void): Promise<void> {
  const { hostname, port } = new URL(url);
  const open = (): Promise<Socket> =>
    new Promise((resolve) => {
      const socket: Socket = connect(Number(port), hostname, () => resolve(socket)).on('error', () => resolve(socket));
    });
  const kinds = [dripHeaders, dripBody, guess];
  await Promise.all(
    Array.from({ length: HOSTILE }, async (_, n) => {
      const kind = kinds[n % kinds.length] ?? guess;
      kind(await open(), url);
    }),
  );
  isReady();
}

function dripHeaders(socket: Socket): void {
  socket.write('GET /api/v1/me HTTP/1.1\r\nhost: localhost\r\nx: ');
  const drip = setInterval(() => socket.write('a'), 200);
  socket.on('close', () => clearInterval(drip));
}

function dripBody(socket: Socket): void {
  socket.write(
    'POST /api/v1/queues/mail/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n',
  );
  const drip = setInterval(() => socket.write('400\r\n'.concat('a'.repeat(1024), '\r\n')), 200);
  socket.on('close', () => clearInterval(drip));
}

function guess(socket: Socket, url: string): void {
  socket.end();
  const again = (): void => {
    const headers = { authorization: 'Bearer a-token-that-is-none' };
    send(new URL('api/v1/jobs', url), { headers }, (response) => {
      response.resume().on('end', () => setTimeout(again, 20));
    })
      .on('error', () => setTimeout(again, 20))
      .end();
  };
  again();
}

if (!isMainThread)
  await beStrangers(String(Reflect.get(Object(workerData), 'strangers')), () => parentPort?.postMessage('ready'));
