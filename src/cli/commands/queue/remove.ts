import type { Command } from 'commander';
import type { RemovedQueue } from '../../../queue/index.ts';
import { EXIT } from '../../output/failure.ts';
import type { Field } from '../../output/output.ts';
import { examples } from '../../setup/help.ts';
import { type Cli, run } from '../../setup/run.ts';

const FIELDS: readonly Field<RemovedQueue>[] = [
  { title: 'queue', of: (row) => row.queue },
  { title: 'jobs', of: (row) => row.jobs },
  { title: 'cancelled', of: (row) => row.cancelled },
  { title: 'moves', of: (row) => row.moves },
  { title: 'schedules', of: (row) => row.schedules },
  { title: 'subscriptions', of: (row) => row.subscriptions },
  { title: 'batches', of: (row) => row.batches },
  { title: 'workers', of: (row) => row.workers },
];

/** `pawl queue remove QUEUE`. */
export function addQueueRemove(queue: Command): void {
  const command = queue
    .command('remove <queue>')
    .description('remove a queue that no program uses any more, with its jobs and their history')
    .option('--force', 'also while it is in use: cancels waiting jobs, and takes running jobs from their workers');
  examples(command, ['pawl queue remove old-emails --dry-run', 'pawl queue remove old-emails --force --yes']);
  command.action((name: string, { force = false }: { force?: boolean }, self: Command) =>
    run(self, (cli) => removeOne(cli, name, force), { writes: true, queue: name }),
  );
}

async function removeOne(cli: Cli, queue: string, force: boolean): Promise<number> {
  const admin = await cli.admin();
  const { new: waiting, inProgress, workers } = await admin.stats(queue);
  const uses = `${waiting} jobs wait, ${inProgress} are in progress, ${workers} workers live`;
  if (cli.globals.dryRun) {
    cli.talk.say(`would remove queue "${queue}": ${uses}`);
    return EXIT.done;
  }
  if (!cli.globals.yes) await cli.talk.confirm(`Remove queue "${queue}" and its history? ${uses}.`, cli.signal);
  const removed = await admin.remove(queue, { force, signal: cli.signal });
  cli.out.one(removed, FIELDS, removed.queue);
  return EXIT.done;
}
