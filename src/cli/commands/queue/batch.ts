import { type Command, InvalidArgumentError } from 'commander';
import type { BatchRecord, HandBatch } from '../../../queue/index.ts';
import { EXIT, messageOf } from '../../output/failure.ts';
import type { Field } from '../../output/output.ts';
import { addDynamoFlagsToAll } from '../../setup/dynamo-table.ts';
import { wholeNumber } from '../../setup/globals.ts';
import { examples } from '../../setup/help.ts';
import { type Cli, run } from '../../setup/run.ts';
import { readJobs, withTimes } from './json-jobs.ts';

const FIELDS: readonly Field<BatchRecord>[] = [
  { title: 'batch', of: (row) => row.id },
  { title: 'queue', of: (row) => row.queue },
  { title: 'total', of: (row) => row.total },
  { title: 'outstanding', of: (row) => row.outstanding },
  { title: 'complete', of: (row) => row.complete },
  { title: 'errors', of: (row) => row.errors },
  { title: 'cancelled', of: (row) => row.cancelled },
  { title: 'sealed', of: (row) => row.sealedAt },
  { title: 'done', of: (row) => row.doneAt },
  { title: 'problem', of: (row) => row.problem },
];

interface MakeFlags {
  readonly onComplete?: unknown;
  readonly onError?: unknown;
  readonly onDone?: unknown;
  readonly parent?: string;
  readonly file?: string;
  readonly seal?: boolean;
}

interface ListFlags {
  readonly limit: number;
  readonly before?: string;
}

/** `pawl batch list|show|make|add|seal`. */
export function addBatch(program: Command): void {
  const batch = program.command('batch').description('list, show, make, fill and seal batches of jobs');
  examples(batch, ['pawl batch list', 'pawl batch seal 7']);
  const list = batch
    .command('list [queue]')
    .description('the batches of one queue, or of all, newest first')
    .option('--limit <n>', 'show at most this many', wholeNumber(1, 200), 20)
    .option('--before <id>', 'go on behind this one');
  examples(list, ['pawl batch list', 'pawl batch list emails --limit 100 -o json']);
  list.action((queue: string | undefined, flags: ListFlags, self: Command) =>
    run(self, (cli) => listAll(cli, queue, flags), { queue }),
  );
  const make = batch
    .command('make <queue>')
    .description('make a batch, open for more unless --seal is given; callbacks are jobs as JSON')
    .option('--on-complete <job>', 'a job for when all members have completed', jobArgument)
    .option('--on-error <job>', 'a job for when all have ended, and not all completed', jobArgument)
    .option('--on-done <job>', 'a job for when all have ended', jobArgument)
    .option('--parent <id>', 'the batch that it is a member of')
    .option('--file <file>', 'its first jobs, a list as JSON; "-" reads it from stdin')
    .option('--seal', 'add nothing to it any more');
  examples(make, [
    `pawl batch make emails --file jobs.json --seal --on-done '{"kind":"report"}'`,
    `id=$(pawl batch make emails --on-error '{"kind":"alarm","payload":1}' -q)`,
  ]);
  make.action((queue: string, flags: MakeFlags, self: Command) =>
    run(self, (cli) => makeOne(cli, queue, flags), { writes: true, queue }),
  );
  const add = batch
    .command('add <id> [file]')
    .description('add jobs to an open batch, all or none: a list of {kind, payload, key, …}');
  examples(add, ['pawl batch add 7 jobs.json', `echo '[{"kind":"send"}]' | pawl batch add 7`]);
  add.action((id: string, file: string | undefined, _options: object, self: Command) =>
    run(self, (cli) => addTo(cli, id, file), { writes: true }),
  );
  const show = batch.command('show <id>').description('how far a batch is');
  examples(show, ['pawl batch show 7', 'pawl batch show 7 -o json']);
  show.action((id: string, _options: object, self: Command) => run(self, (cli) => showOne(cli, id)));
  const seal = batch
    .command('seal <id>')
    .description('add nothing to it any more, so that it can end; for one whose program died before it did so');
  examples(seal, ['pawl batch seal 7', 'pawl batch seal 7 --dry-run']);
  seal.action((id: string, _options: object, self: Command) => run(self, (cli) => sealOne(cli, id), { writes: true }));
  addDynamoFlagsToAll(batch, 'the batches are in this table');
}

const ROWS: readonly Field<BatchRecord>[] = FIELDS.slice(0, -1).map((field) => ({
  ...field,
  title: field.title.toUpperCase(),
}));

async function listAll(cli: Cli, queue: string | undefined, { limit, before }: ListFlags): Promise<number> {
  const batches = await (await cli.admin()).batches({ queue, limit, before });
  cli.out.rows(batches, ROWS, (row) => row.id);
  const last = batches.at(-1);
  if (last !== undefined && batches.length === limit) cli.talk.say(`there may be more: --before ${last.id}`);
  if (batches.length === 0) cli.talk.say('there is no batch');
  return EXIT.done;
}

async function makeOne(cli: Cli, queue: string, flags: MakeFlags): Promise<number> {
  const { file, seal = false, onComplete, onError, onDone, parent } = flags;
  const jobs = file === undefined ? [] : await readJobs(file, 'what --file names');
  const admin = await cli.admin();
  if (cli.globals.dryRun) {
    await admin.stats(queue);
    cli.talk.say(`would make a batch in queue "${queue}" with ${jobs.length} jobs`);
    return EXIT.done;
  }
  const id = await admin.newBatch(queue, { onComplete, onError, onDone, parent } as HandBatch, jobs);
  if (seal) await admin.sealBatch(id, { signal: cli.signal });
  else cli.talk.say(`it is open; pawl batch seal ${id} lets it end`);
  return showOne(cli, id);
}

async function addTo(cli: Cli, id: string, file: string | undefined): Promise<number> {
  const jobs = await readJobs(file, 'what is added');
  const admin = await cli.admin();
  if (cli.globals.dryRun) {
    const { queue } = await admin.batch(id);
    cli.talk.say(`would add ${jobs.length} jobs to batch ${id} of queue "${queue}"`);
    return EXIT.done;
  }
  const added = await admin.addToBatch(id, jobs);
  cli.out.rows(
    added,
    [
      { title: 'ID', of: (row) => row.id, align: 'right' },
      { title: 'STATUS', of: (row) => row.status },
      { title: 'DUPLICATE', of: (row) => (row.duplicate ? 'yes' : 'no') },
    ],
    (row) => row.id,
  );
  return EXIT.done;
}

/** A job of the command line. @throws InvalidArgumentError */
function jobArgument(value: string): unknown {
  try {
    return withTimes(JSON.parse(value));
  } catch (error) {
    throw new InvalidArgumentError(`It must be a job as JSON, such as '{"kind":"report"}': ${messageOf(error)}`);
  }
}

async function showOne(cli: Cli, id: string): Promise<number> {
  cli.out.one(await (await cli.admin()).batch(id), FIELDS, id);
  return EXIT.done;
}

async function sealOne(cli: Cli, id: string): Promise<number> {
  if (!cli.globals.dryRun) await (await cli.admin()).sealBatch(id, { signal: cli.signal });
  else cli.talk.say(`would seal batch ${id}`);
  return showOne(cli, id);
}
