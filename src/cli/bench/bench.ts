import type { Command } from 'commander';
import { EXIT } from '../output/failure.ts';
import { wholeNumber } from '../setup/globals.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';
import { needTarget } from '../setup/target.ts';
import type { BenchSize } from './measure.ts';

interface Figures {
  readonly jobs: number;
  readonly concurrency: number;
  /** By `enqueueMany`, a thousand jobs in a round trip. */
  readonly enqueuePerSecond: number;
  /** By one worker, with handlers that do nothing. */
  readonly drainPerSecond: number;
  /** From the call of `enqueue` to the handler of an idle worker. */
  readonly pickupP50Ms: number;
  readonly pickupP95Ms: number;
  readonly node: string;
  readonly postgres: string;
}

/** `pawl bench`: measures what this machine and this database achieve together. */
export function addBench(program: Command): void {
  const command = program
    .command('bench')
    .description(`measure enqueue, drain and pick-up on the database, in a queue "pawl-bench" that is emptied again`)
    .option('--jobs <n>', 'jobs to enqueue and drain', wholeNumber(1, 10_000_000), 20_000)
    .option('--concurrency <n>', 'how many jobs the worker runs at once', wholeNumber(1, 10_000), 10)
    .option('--pickups <n>', 'single jobs to time', wholeNumber(1, 100_000), 200);
  examples(command, ['pawl bench', 'pawl bench --jobs 100000 -o json']);
  command.action((flags: BenchSize, self: Command) => run(self, (cli) => bench(cli, flags), { writes: true }));
}

async function bench(cli: Cli, flags: BenchSize): Promise<number> {
  const target = await needTarget(cli.globals);
  const { jobs, concurrency, pickups } = flags;
  if (cli.globals.dryRun) {
    cli.talk.say(
      `would add ${jobs + pickups} jobs to queue "pawl-bench", run them with concurrency ${concurrency}, and remove them`,
    );
    return EXIT.done;
  }
  const engine = await cli.open(target, { max: 10 });
  const { measure } = await import('./measure.ts');
  const { enqueuePerSecond, drainPerSecond, waits } = await measure(cli, engine, target.url, flags);
  const figures: Figures = {
    jobs,
    concurrency,
    enqueuePerSecond: Math.round(enqueuePerSecond),
    drainPerSecond: Math.round(drainPerSecond),
    pickupP50Ms: round(at(waits, 0.5)),
    pickupP95Ms: round(at(waits, 0.95)),
    node: process.versions.node,
    postgres: (await engine.describe()).serverVersion,
  };
  const fields = Object.keys(figures).map((title) => ({ title, of: (row: Figures) => Reflect.get(row, title) }));
  cli.out.one(figures, fields, String(figures.drainPerSecond));
  return EXIT.done;
}

function at(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
