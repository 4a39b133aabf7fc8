// Writes and reads documents by the plan, one operation after another. After a kill it continues with the next one.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { postgres, statement, type Transaction } from '../../../src/engine/postgres/index.ts';
import { createFiles, type FileReading, type WriteResult } from '../../../src/files/index.ts';
import { note, plant, ready, url } from '../member/member-side.ts';
import { bytesOf, hashOf } from './bytes.ts';
import type { ClientEvent } from './history.ts';
import { limitsOf, openStore } from './member-store.ts';
import type { Operation } from './plan.ts';
import { plantInMember } from './plants.ts';

const { OPERATIONS = '', LIMIT = '2000', RETAIN = '1000', HOT = '', FAULTS_LOG = '', CLIENT = '0' } = process.env;
/** Longer than any operation within its limits, also on a busy machine. */
const HUNG_MS = 8 * Number(LIMIT);
const operations: readonly Operation[] = JSON.parse(readFileSync(OPERATIONS, 'utf8'));
const COMMITTED = statement('faults.committed', 'insert into faults_committed (op) values ($1)');

/**
 * A careful application limits its idle transactions: on a silent connection, the server would keep the transaction, and with it the lock
 * on the document.
 */
const bounded = new URL(url);
bounded.searchParams.set('options', '-c idle_in_transaction_session_timeout=10s');
const engine = postgres(bounded.href, { max: 4 });
const content = await openStore(process.env);
note<ClientEvent>({ do: 'born' });
if (plant !== undefined) plantInMember(plant, content);
const limits = limitsOf(Number(LIMIT));
const files = createFiles(engine, {
  content,
  limits,
  pending: 2 * limits.total,
  retain: Number(RETAIN),
  tombstone: '1m',
});
const hot = files.hot({ dir: HOT, maxBytes: 8 << 20, wait: '3s' });

class Undone extends Error {}

function source(bytes: Buffer): AsyncGenerator<Buffer, void> {
  return (async function* () {
    for (let from = 0; from < bytes.length; from += 100_000) yield bytes.subarray(from, from + 100_000);
  })();
}

/** The `ifVersion` of an operation: the current version. */
async function expectation(op: string, { id, isGuarded }: Operation): Promise<{ ifVersion?: number }> {
  if (!isGuarded) return {};
  const version = await files.stat(id).then(
    (found) => found.version,
    (error: unknown) => {
      if (Reflect.get(Object(error), 'code') === 'not_found') return 0;
      throw error;
    },
  );
  note<ClientEvent>({ do: 'expect', op, version });
  return { ifVersion: version };
}

async function inTransaction(op: string, work: (tx: Transaction) => Promise<WriteResult>): Promise<WriteResult> {
  const run = async (tx: Transaction): Promise<WriteResult> => {
    await tx.query(COMMITTED, [op]);
    return work(tx);
  };
  return engine.transaction(run, { retries: 0 });
}

async function write(op: string, operation: Operation): Promise<WriteResult | undefined> {
  const { deed, id, from, size, lateMs } = operation;
  const over = await expectation(op, operation);
  if (deed === 'write') return files.write(id, source(bytesOf(op, size)), over);
  if (deed === 'restore') return files.restore(id, await before(id), over);
  if (deed === 'copy') return files.copy(from, id, over);
  const upload = await files.upload(id, source(bytesOf(op, size)), over);
  if (deed === 'abandon') {
    await upload.abandon();
    return undefined;
  }
  if (deed === 'late') await sleep(lateMs);
  return inTransaction(op, async (tx) => {
    const written = await upload.publish({ tx });
    if (deed === 'undo') throw new Undone('as it was told to');
    return written;
  });
}

/** An earlier version, or the live one if there is none. */
async function before(id: string): Promise<number> {
  const past = await files.history(id, { limit: 3 });
  return (past.at(-1) ?? (await files.stat(id))).version;
}

async function open({ deed, id }: Operation): Promise<FileReading> {
  if (deed === 'hot') return hot.open(id);
  return files.read(id, deed === 'read old' ? { version: await before(id) } : {});
}

async function digestOf(stream: Readable): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of stream) hash.update(chunk);
  return hash.digest('hex');
}

async function carryOut(op: string, operation: Operation): Promise<ClientEvent> {
  const { deed, id } = operation;
  if (deed === 'read' || deed === 'read old' || deed === 'hot') {
    const { version, stream } = await open(operation);
    return { do: 'got', op, version: version.version, sha256: version.sha256, digest: await digestOf(stream) };
  }
  if (deed === 'remove') {
    await files.remove(id);
    return { do: 'told', op, version: 0, sha256: null };
  }
  const written = await write(op, operation);
  return { do: 'told', op, version: written?.version ?? 0, sha256: written?.sha256 ?? null };
}

async function operate(op: string, operation: Operation): Promise<void> {
  const { deed, id, size } = operation;
  const isOwn = deed === 'write' || deed === 'tx' || deed === 'late' || deed === 'undo' || deed === 'abandon';
  note<ClientEvent>({ do: 'ask', op, deed, id, sha256: isOwn ? hashOf(bytesOf(op, size)) : null });
  const hung = setTimeout(() => {
    note<ClientEvent>({ do: 'hung', op });
    process.kill(process.pid, 'SIGKILL');
  }, HUNG_MS);
  try {
    note<ClientEvent>(await carryOut(op, operation));
  } catch (error) {
    const code = String(Reflect.get(Object(error), 'code') ?? Object(error).constructor?.name);
    note<ClientEvent>({ do: 'failed', op, code, message: String(error) });
  } finally {
    clearTimeout(hung);
  }
}

/** The number of such notes of this process and of earlier ones. */
function noted(event: RegExp): number {
  const log = readFileSync(FAULTS_LOG, 'utf8').split('\n');
  return log.filter((line) => event.test(line)).length;
}

/** Repeated until a version is written: if a busy machine lets no call end within its limits, nothing would be checked. */
const AT_LEAST = operations.find(({ deed }) => deed === 'write');
const MOST_TRIES = 10;

ready(async () => {
  await files.stop();
  await engine.stop();
});
for (let at = noted(/"do":"ask"/); at < operations.length + MOST_TRIES; at += 1) {
  const operation = operations[at] ?? (noted(/"do":"told".*"version":[1-9]/) > 0 ? undefined : AT_LEAST);
  if (operation === undefined) break;
  await sleep(operation.restMs);
  await operate(`client-${CLIENT} ${at}`, operation);
}
note<ClientEvent>({ do: 'done' });
