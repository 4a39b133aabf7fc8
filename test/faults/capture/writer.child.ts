// An application without Pawl: it executes the transactions of the plan, one after another, on its own connection.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { note, ready, url } from '../member/member-side.ts';
import type { WriterEvent } from './check/history.ts';
import type { Work } from './plan.ts';

const { WORK = '', FAULTS_LOG = '' } = process.env;
const works: readonly Work[] = JSON.parse(readFileSync(WORK, 'utf8'));
/** If a silent network holds back the answer for this time, the process is killed, as by a health check. */
const ANSWER_MS = 4000;

async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  // Two writers may block each other, and the session of a killed process holds its locks until the server notices the kill.
  await client.query("set lock_timeout = '1s'; set idle_in_transaction_session_timeout = '2s'");
  return client;
}

let client: Promise<pg.Client> | undefined;

async function carryOut({ statements, end }: Work): Promise<void> {
  const silent = setTimeout(() => process.kill(process.pid, 'SIGKILL'), ANSWER_MS);
  try {
    client ??= connect();
    const session = await client;
    try {
      await session.query('begin');
      for (const statement of statements) await session.query(statement);
      await session.query(end);
    } catch {
      // The transaction was refused, or the connection is gone. The outcome is in the database.
      await session.query('rollback').catch(() => {
        client = undefined;
      });
    }
  } catch {
    client = undefined;
    await sleep(50);
  } finally {
    clearTimeout(silent);
  }
}

function begun(): number {
  const log = readFileSync(FAULTS_LOG, 'utf8').split('\n');
  return log.filter((line) => line.includes('"do":"work"')).length;
}

ready(async () => {
  const session = await client?.catch(() => undefined);
  await session?.end().catch(() => {});
});
for (let at = begun(); at < works.length; at += 1) {
  const work = works[at];
  if (work === undefined) break;
  await sleep(work.restMs);
  note<WriterEvent>({ do: 'work', nth: at });
  await carryOut(work);
}
note<WriterEvent>({ do: 'done' });
