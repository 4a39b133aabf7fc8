// Creates orders, raises and sends by the plan, one operation after another. After a kill it continues with the next one.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { createActors } from '../../../src/actor/index.ts';
import { postgres, statement, type Transaction } from '../../../src/engine/postgres/index.ts';
import { note, ready, url } from '../member/member-side.ts';
import { declare } from './declaration.ts';
import type { ProducerEvent } from './history.ts';
import type { Operation } from './plan.ts';

const ANSWER_MS = 3000;
const { OPERATIONS = '', COUNTERS = '[]', FAULTS_LOG = '' } = process.env;
const operations: readonly Operation[] = JSON.parse(readFileSync(OPERATIONS, 'utf8'));
const counters: readonly string[] = JSON.parse(COUNTERS);
const ASKED = statement('faults.asked', 'insert into faults_asked (producer, operation, id) values ($1, $2, $3)');

const engine = postgres(url, { max: 3 });
const nothing = async (): Promise<void> => {};
const types = declare({ begin: nothing, atCommit() {}, guarded: nothing, once: nothing, ending() {} });
const [Order] = types;
const actors = createActors(engine, types);
const who = Number(process.env['PRODUCER'] ?? '0');

class RolledBack extends Error {}

async function act({ what, orders, counter }: Operation, tx?: Transaction): Promise<string> {
  const target = counters[counter] ?? '';
  if (what === 'create') return (await actors.create(Order, { ...orders }, { tx })).id;
  if (what === 'raise') await actors.incr(target, 'go', { tx });
  else await actors.send(target, 'note', orders.n, { tx });
  return target;
}

/** @returns the actor of the operation */
function carryOut(at: number, operation: Operation): Promise<string> {
  if (operation.how === 'alone') return act(operation);
  return engine.transaction(
    async (tx) => {
      const id = await act(operation, tx);
      await tx.query(ASKED, [who, at, id]);
      if (operation.how === 'rolled back') throw new RolledBack('as it was told to');
      return id;
    },
    { retries: 0 },
  );
}

/** If a silent network holds back the answer, the process is killed, as by a health check. */
async function operate(at: number, operation: Operation): Promise<void> {
  note<ProducerEvent>({ do: 'ask', operation: at });
  const silent = setTimeout(() => process.kill(process.pid, 'SIGKILL'), ANSWER_MS);
  try {
    const id = await carryOut(at, operation);
    note<ProducerEvent>({ do: 'told', operation: at, id });
  } catch {
    // The outcome is in the database, or unknown.
  } finally {
    clearTimeout(silent);
  }
}

/** The number of operations that earlier processes have begun. */
function begun(): number {
  const log = readFileSync(FAULTS_LOG, 'utf8').split('\n');
  return log.filter((line) => line.includes('"do":"ask"')).length;
}

ready(() => engine.stop());
for (let at = begun(); at < operations.length; at += 1) {
  const operation = operations[at];
  if (operation === undefined) break;
  await sleep(operation.restMs);
  await operate(at, operation);
}
note<ProducerEvent>({ do: 'done' });
