// Runs the spreadsheets by themselves, on either engine:
// node dist-examples/spreadsheets/main.js --engine dynamodb [--exit-after SECONDS] [--seed N] [--port N] [--json]
import { parseArgs } from 'node:util';
import { runExamples } from '../dev.ts';
import { startLocal } from '../ledger/local.ts';
import { SpreadsheetsDev } from './dev.ts';
import { openStore } from './open-store.ts';
import { type Place, readPlace } from './settings.ts';

const { values: given } = parseArgs({
  options: {
    engine: { type: 'string' },
    'exit-after': { type: 'string' },
    seed: { type: 'string' },
    port: { type: 'string' },
    json: { type: 'boolean' },
  },
});
const place = readPlace(given.engine);
const local = place.engine === 'dynamodb' ? await dynamoOf(place) : undefined;
const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
// The reader of our output has seen enough, as `head` does: what was started is ended as usual.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => stop.abort());
try {
  const store = await openStore(place, 'spreadsheets');
  const context = {
    // What is in memory is gone with it, and so are its files.
    embedded: local === undefined ? undefined : { dataDir: '', temporary: true },
    exitAfterMs: given['exit-after'] === undefined ? undefined : number('exit-after') * 1000,
    signal: stop.signal,
    port: number('port'),
    seed: given.seed === undefined ? undefined : number('seed'),
    log: (line: string) => console.error(line),
  };
  const env: Readonly<Record<string, string>> =
    place.engine === 'postgres'
      ? { SPREADSHEETS_ENGINE: place.engine, DATABASE_URL: place.url }
      : { SPREADSHEETS_ENGINE: place.engine, SPREADSHEETS_TABLE: place.table };
  const figures = await runExamples([new SpreadsheetsDev(context, store, env)], context);
  await store.stop();
  console.log(given.json === true ? JSON.stringify(figures) : figures);
  process.exitCode = figures.ok ? 0 : 1;
} finally {
  await local?.stop();
}

/** The one of AWS_ENDPOINT_URL, or of the Region that is set, else DynamoDB Local. @throws Error  that cannot run here */
async function dynamoOf({
  table,
}: Extract<Place, { engine: 'dynamodb' }>): Promise<{ stop(): Promise<void> } | undefined> {
  const { AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_DYNAMODB, AWS_REGION } = process.env;
  if (AWS_ENDPOINT_URL ?? AWS_ENDPOINT_URL_DYNAMODB ?? AWS_REGION) return undefined;
  const started = await startLocal();
  if (typeof started === 'string') {
    console.error(`${started}: install that, or say where a DynamoDB is, by AWS_ENDPOINT_URL or AWS_REGION`);
    process.exit(1);
  }
  // For this process, and for all that it starts. DynamoDB Local lets everybody in.
  Object.assign(process.env, {
    AWS_ENDPOINT_URL: started.endpoint,
    AWS_REGION: 'local',
    AWS_ACCESS_KEY_ID: 'local',
    AWS_SECRET_ACCESS_KEY: 'local',
  });
  console.error(`DynamoDB Local ${started.version} runs at ${started.endpoint}, and ends with this`);
  console.error(`  dashboard npx pawl dashboard --dynamodb ${table} --endpoint ${started.endpoint}`);
  return started;
}

function number(name: 'exit-after' | 'seed' | 'port'): number {
  const value = Number(given[name] ?? 0);
  if (Number.isInteger(value) && value >= 0) return value;
  throw new Error(`--${name} must be a whole number, not "${given[name]}"`);
}
