// Runs the ledger by itself: node dist-examples/ledger/main.js, or with LEDGER_ENDPOINT=http://localhost:8000
import { runLedger } from './ledger.ts';
import { startLocal } from './local.ts';

const given = process.env['LEDGER_ENDPOINT'];
const local = given === undefined ? await startLocal() : { endpoint: given, stop: async () => {} };
if (typeof local === 'string') throw new Error(`${local}; or say where a DynamoDB is: LEDGER_ENDPOINT=http://…`);
try {
  console.log(JSON.stringify({ ledger: await runLedger(local.endpoint, { log: (line) => console.error(line) }) }));
} finally {
  await local.stop();
}
