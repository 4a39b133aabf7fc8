// Runs the ledger by itself: node dist-examples/ledger/main.js, or with LEDGER_ENDPOINT=http://localhost:8000
import { runLedger } from './ledger.ts';
import { givenOrLocal } from './local.ts';

const local = await givenOrLocal();
if (typeof local === 'string') throw new Error(`${local}; or say where a DynamoDB is: LEDGER_ENDPOINT=http://…`);
try {
  console.log(JSON.stringify({ ledger: await runLedger(local.endpoint, { log: (line) => console.error(line) }) }));
} finally {
  await local.stop();
}
