import type { Command } from 'commander';
import { EXIT, Failure } from '../output/failure.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';

/** `pawl worker release ID`: gives back the jobs of a worker that is dead. */
export function addRelease(worker: Command): void {
  const command = worker
    .command('release <worker>')
    .description('give back the jobs of a dead worker of a queue now, charged, before its lease is over');
  examples(command, ['pawl worker release 1042', 'pawl worker release 1042 --dry-run']);
  command.action((id: string, _options: object, self: Command) =>
    run(self, (cli) => release(cli, id), { writes: true }),
  );
}

async function release(cli: Cli, id: string): Promise<number> {
  const admin = await cli.admin();
  if (cli.globals.dryRun) {
    const worker = (await admin.workers()).find((one) => one.id === id);
    if (worker === undefined) {
      throw new Failure(`there is no worker ${id}`, {
        exit: EXIT.notFound,
        next: 'look at the page of workers in the dashboard, or at the view pawl.worker',
      });
    }
    const { queue, host, pid, inProgress } = worker;
    cli.talk.say(`worker ${id} of queue "${queue}" (${host}:${pid}) would be released, with ${inProgress} jobs`);
    return EXIT.done;
  }
  const { jobs, left } = await admin.releaseWorker(id);
  cli.talk.say(`worker ${id} is released: ${jobs} jobs were given back`);
  if (left > 0)
    cli.talk.say(`${left} of its jobs are held by open transactions, and are given back when those have ended`);
  cli.out.one(
    { worker: id, jobs, left },
    [
      { title: 'worker', of: (row) => row.worker },
      { title: 'jobs', of: (row) => row.jobs },
      { title: 'left', of: (row) => row.left },
    ],
    id,
  );
  return EXIT.done;
}
