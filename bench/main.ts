import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { type Context, Sides } from './harness/context.ts';
import { asJson, asTable } from './harness/report.ts';
import { Server } from './harness/server.ts';
import { benches, withoutPostgres } from './registry.ts';

const USAGE = `usage: npm run --silent bench -- NAME [--json] [--quick] [--rounds N] [--size N] [--peers-only]
                                    [--before DIR]

  NAME          ${Object.keys(benches).join(' | ')}
  --json        one line of JSON on stdout instead of tables
  --quick       less work, under 45 s; the figures are rougher
  --rounds N    repeat each measurement N times (default 3)
  --size N      of capture: everything over N rows and over a tenth of them, instead of the usual
  --peers-only  leave our own side out, to tune the peers; no bars then
  --before DIR  of before-after: another checkout, built, with which this one is compared

The exit code is 1 only when a measurement could not be made, not when a bar does not hold.
BENCH_DATABASE_URL names a server to use instead of the embedded one.`;

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: 'boolean', default: false },
    quick: { type: 'boolean', default: false },
    rounds: { type: 'string', default: '3' },
    size: { type: 'string' },
    'peers-only': { type: 'boolean', default: false },
    before: { type: 'string' },
    help: { type: 'boolean', short: 'h', default: false },
  },
});

async function main(): Promise<number> {
  const [name = ''] = positionals;
  const bench = benches[name];
  const rounds = Number(options.rounds);
  const size = options.size === undefined ? undefined : Number(options.size);
  if (options.help) {
    process.stdout.write(`${USAGE}\n`);
    return 0;
  }
  if (bench === undefined || positionals.length !== 1 || !isCount(rounds) || !isCount(size ?? 1)) {
    process.stderr.write(`${USAGE}\n`);
    return 1;
  }
  const before = options.before === undefined ? undefined : pathToFileURL(`${resolve(options.before)}/bench/`);
  const begin = performance.now();
  await using server = withoutPostgres.has(name) ? undefined : await Server.start();
  await using sides = new Sides();
  const context: Context = {
    get server() {
      if (server === undefined) throw new Error(`the bench ${name} runs without Postgres`);
      return server;
    },
    rounds,
    quick: options.quick,
    size,
    peersOnly: options['peers-only'],
    say: (line) => process.stderr.write(`${((performance.now() - begin) / 1000).toFixed(1).padStart(6)} s  ${line}\n`),
    side: (side) => sides.start(side),
    sideBefore: before && ((side) => sides.start(side, before)),
  };
  const outcome = await bench(context);
  const run = { bench: name, node: process.version, postgres: server?.version };
  process.stdout.write(`${options.json ? asJson(run, outcome) : asTable(run, outcome)}\n`);
  return 0;
}

function isCount(number: number): boolean {
  return Number.isInteger(number) && number >= 1;
}

process.exitCode = await main().catch((error: unknown) => {
  process.stderr.write(`bench: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  return 1;
});
