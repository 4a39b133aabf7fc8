// Captures rows inside a transaction, prints them, and holds them until it is killed or gets the order to commit.
import { once } from 'node:events';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { captureRows } from '../../../src/lock/rows/claim.ts';

const engine = postgres(process.env['DATABASE_URL']);
await engine.transaction(async (tx) => {
  const captured = await captureRows(tx, process.argv[2] ?? '', {
    status: { from: 'new', to: 'in_progress' },
    limit: 3,
    retries: 'retries',
    token: 'token',
  });
  console.log(JSON.stringify(captured.map(({ row }) => row['id'])));
  await once(process.stdin, 'data');
});
await engine.stop();
process.exit();
