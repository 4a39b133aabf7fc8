// Runs the night on the database of PAWL_URL: PAWL_URL=postgres://… npx tsx examples/nightly/main.ts
import { postgres } from 'pawl/postgres';
import { runNightly } from './nightly.ts';

const url = process.env['PAWL_URL'];
if (url === undefined) throw new Error('say on which database: PAWL_URL=postgres://user:password@host/database');
const engine = postgres(url);
await engine.migrate();
await engine.stop();
console.log(JSON.stringify({ nightly: await runNightly(url, { log: (line) => console.error(line) }) }));
