// One of the processes of the ledger: moves money, or sums it up, until it is told to end.
import { setTimeout as sleep } from 'node:timers/promises';
import { dynamodb } from 'pawl/dynamodb';
import { createLocks } from 'pawl/lock';
import { stopWhenTold, tellParent } from '../child-process.ts';
import { ledgerClient } from './client.ts';
import { type Guard, Orders } from './orders.ts';

const { LEDGER_ENDPOINT = '', LEDGER_TABLE = '', LEDGER_USER = '', LEDGER_ORDERS = '', LEDGER_ROLE = '' } = process.env;
const isLocked = process.env['LEDGER_LOCKED'] === 'yes';

const client = ledgerClient(LEDGER_ENDPOINT);
const locks = createLocks(dynamodb(client, { table: LEDGER_TABLE }), { namespace: 'ledger', waiterLease: '2s' });
const orders = new Orders(client, LEDGER_TABLE, LEDGER_USER, Number(LEDGER_ORDERS));
const UNGUARDED: Guard = () => [];

async function alone(work: (guard: Guard) => Promise<void>): Promise<void> {
  if (!isLocked) return work(UNGUARDED);
  await locks.request(`user:${LEDGER_USER}`, { lease: '2s' }, async (lock) => {
    const guard: Guard = () => lock.guard();
    if (await orders.finish(guard)) tellParent({ finished: true });
    await work(guard);
  });
}

async function turn(): Promise<void> {
  if (LEDGER_ROLE === 'sum') {
    await alone(async () => tellParent({ sum: await orders.sum() }));
    return;
  }
  await alone(async (guard) => {
    await orders.move(guard, async () => {
      // The moment at which a crash would be worst.
      tellParent({ moving: true });
      await sleep(20);
    });
    tellParent({ moved: true });
  });
}

let isStopping = false;
async function work(): Promise<void> {
  while (!isStopping) {
    await turn();
    await sleep(5);
  }
}

tellParent({ ready: true });
const working = work();
stopWhenTold(async () => {
  isStopping = true;
  await working;
  await locks.stop();
  client.destroy();
});
