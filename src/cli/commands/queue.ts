import type { Command } from 'commander';
import { type AnyQueueAdmin, namePart, type PartOptions } from '../../queue/index.ts';
import { EXIT } from '../output/failure.ts';
import type { Field } from '../output/output.ts';
import { addDynamoFlagsToAll } from '../setup/dynamo-table.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';
import { addQueueRemove } from './queue/remove.ts';

/** `pawl queue list|stats|pause|resume|remove`. */
export function addQueue(program: Command): void {
  const queue = program.command('queue').description('show, pause, resume and remove queues');
  examples(queue, ['pawl queue list', 'pawl queue stats emails -o json']);
  const list = queue.command('list').description('the queues that the database knows');
  examples(list, ['pawl queue list', 'pawl queue list -q']);
  list.action((_options: object, self: Command) => run(self, listQueues));
  const stats = queue.command('stats [queue]').description('how many jobs are in each state, in one queue or in all');
  examples(stats, ['pawl queue stats', 'pawl queue stats emails -o json']);
  stats.action((name: string | undefined, _options: object, self: Command) =>
    run(self, (cli) => showStats(cli, name), { queue: name }),
  );
  for (const verb of ['pause', 'resume'] as const) {
    const does = verb === 'pause' ? 'stop all claims; running jobs are finished' : 'let workers claim again';
    const command = queue.command(`${verb} <queue>`).description(does);
    command
      .option('--kind <kind>', 'only jobs of this kind')
      .option('--key <key>', 'only jobs of this key')
      .option('--tag <tag>', 'only jobs with this tag; with several options, jobs that have all of them');
    examples(command, [`pawl queue ${verb} emails`, `pawl queue ${verb} emails --kind send --key acme`]);
    command.action((name: string, part: PartOptions, self: Command) =>
      run(self, (cli) => turn(cli, verb, name, part), { writes: true, queue: name }),
    );
  }
  addQueueRemove(queue);
  addDynamoFlagsToAll(queue, 'the queues are in this table');
}

async function listQueues(cli: Cli): Promise<number> {
  const queues = await (await cli.admin()).list();
  cli.out.rows(
    queues,
    [
      { title: 'QUEUE', of: (row) => row.name },
      { title: 'KINDS', of: (row) => row.kinds.join(', ') },
      { title: 'SHARDS', of: (row) => row.shards, align: 'right' },
      { title: 'ATTEMPTS', of: (row) => row.attempts, align: 'right' },
      { title: 'WORKERS', of: (row) => row.workers, align: 'right' },
      { title: 'BLOCKED', of: (row) => row.blockedKeys, align: 'right' },
      { title: 'PAUSED', of: (row) => row.pausedAt ?? (row.pausedParts.map(namePart).join('; ') || null) },
    ],
    (row) => row.name,
  );
  if (queues.length === 0)
    cli.talk.say('no queue is registered yet: a program registers a queue when it first uses it');
  return EXIT.done;
}

type Stats = Awaited<ReturnType<AnyQueueAdmin['stats']>> & { readonly queue: string };

const STATS: readonly Field<Stats>[] = [
  { title: 'QUEUE', of: (row) => row.queue },
  { title: 'READY', of: (row) => row.ready, align: 'right' },
  { title: 'DELAYED', of: (row) => row.delayed, align: 'right' },
  { title: 'PARKED', of: (row) => row.parked, align: 'right' },
  { title: 'IN-PROGRESS', of: (row) => row.inProgress, align: 'right' },
  { title: 'ERROR', of: (row) => row.error, align: 'right' },
  { title: 'CANCELLED', of: (row) => row.cancelled, align: 'right' },
  { title: 'DONE/MIN', of: (row) => row.completePerMinute, align: 'right' },
  {
    title: 'OLDEST',
    of: (row) => (row.oldestReadyMs === null ? null : `${(row.oldestReadyMs / 1000).toFixed(1)} s`),
    align: 'right',
  },
  { title: 'BLOCKED', of: (row) => row.blockedKeys, align: 'right' },
  { title: 'WORKERS', of: (row) => row.workers, align: 'right' },
  { title: 'PAUSED', of: (row) => (row.paused ? 'yes' : row.pausedParts.map(namePart).join('; ') || 'no') },
];

async function showStats(cli: Cli, name: string | undefined): Promise<number> {
  const admin = await cli.admin();
  const names = name === undefined ? (await admin.list()).map((queue) => queue.name) : [name];
  const rows: Stats[] = [];
  for (const queue of names) rows.push({ queue, ...(await admin.stats(queue)) });
  const [only] = rows;
  if (name !== undefined && only !== undefined && cli.out.format === 'json') cli.out.one(only, STATS, name);
  else cli.out.rows(rows, STATS, (row) => row.queue);
  return EXIT.done;
}

async function turn(cli: Cli, verb: 'pause' | 'resume', name: string, flags: PartOptions): Promise<number> {
  const words = Object.entries({ kind: flags.kind, key: flags.key, tag: flags.tag });
  const given: PartOptions = Object.fromEntries(words.filter(([, value]) => value !== undefined));
  const admin = await cli.admin();
  const done = verb === 'pause' ? 'paused' : 'resumed';
  const part = Object.keys(given).length === 0 ? undefined : given;
  const { kind = null, key = null, tag = null } = given;
  const what = `${part === undefined ? '' : `${namePart({ kind, key, tag })} of `}queue "${name}"`;
  if (cli.globals.dryRun) {
    await admin.stats(name);
    cli.talk.say(`${what} would be ${done}`);
    return EXIT.done;
  }
  await admin[verb](name, part);
  const options = Object.entries(given).map(([option, value]) => ` --${option} ${value}`);
  cli.talk.say(
    `${what} is ${done}${verb === 'pause' ? `; pawl queue resume ${name}${options.join('')} ends that` : ''}`,
  );
  cli.out.one({ queue: name, [done]: true }, [{ title: done, of: () => name }], name);
  return EXIT.done;
}
