import type { Command } from 'commander';
import type { AnyQueueAdmin, BulkResult } from '../../../queue/index.ts';
import { EXIT } from '../../output/failure.ts';
import { examples } from '../../setup/help.ts';
import { type Cli, run } from '../../setup/run.ts';

/** `pawl job purge|retry-all|cancel-all|move QUEUE QUERY`: all jobs that a search finds. */
export function addJobBulk(job: Command): void {
  const purge = job
    .command('purge <queue> <query...>')
    .description('erase all jobs that a search finds, with their history; those in progress stay');
  examples(purge, ['pawl job purge emails status:cancelled', `pawl job purge emails 'key:"ada"' --yes`]);
  purge.action((queue: string, words: string[], _options: object, self: Command) =>
    run(self, (cli) => all(cli, queue, words, { verb: 'erase', change: (admin, ...on) => admin.purge(...on) }), {
      writes: true,
      queue,
    }),
  );
  const retry = job.command('retry-all <queue> <query...>').description('put all jobs that a search finds back to new');
  examples(retry, ['pawl job retry-all emails status:error since:2h', 'pawl job retry-all emails status:error --yes']);
  retry.action((queue: string, words: string[], _options: object, self: Command) =>
    run(self, (cli) => all(cli, queue, words, { verb: 'retry', change: (admin, ...on) => admin.retryAll(...on) }), {
      writes: true,
      queue,
    }),
  );
  const cancel = job
    .command('cancel-all <queue> <query...>')
    .description('cancel all jobs that a search finds; the signals of running ones are aborted')
    .option('--reason <text>', 'the reason, stored with each job');
  examples(cancel, ['pawl job cancel-all emails tag:acme status:new', 'pawl job cancel-all emails kind:send --yes']);
  cancel.action((queue: string, words: string[], { reason }: { reason?: string }, self: Command) =>
    run(
      self,
      (cli) =>
        all(cli, queue, words, {
          verb: 'cancel',
          change: (admin, on, query, options) => admin.cancelAll(on, query, { ...options, reason }),
        }),
      { writes: true, queue },
    ),
  );
  const move = job
    .command('move <queue> <to> <query...>')
    .description(
      'move all jobs that a search finds to another queue: those that wait, or ended otherwise than complete',
    )
    .option('--to-kind <kind>', 'their kind there; default: that of the same name');
  examples(move, ['pawl job move emails slow-emails kind:report', 'pawl job move old new status:new --to-kind send']);
  move.action((queue: string, to: string, words: string[], { toKind }: { toKind?: string }, self: Command) =>
    run(
      self,
      (cli) =>
        all(cli, queue, words, {
          verb: 'move',
          change: (admin, from, query, options) => admin.move(from, query, to, { ...options, toKind }),
        }),
      { writes: true, queue },
    ),
  );
}

interface Bulk {
  readonly verb: 'erase' | 'retry' | 'cancel' | 'move';
  readonly change: (
    admin: AnyQueueAdmin,
    queue: string,
    query: string,
    options: { readonly signal: AbortSignal },
  ) => Promise<BulkResult>;
}

/** Counts the jobs, asks, and changes them in pieces: Ctrl-C ends the command after the piece under way. */
async function all(cli: Cli, queue: string, words: readonly string[], { verb, change }: Bulk): Promise<number> {
  const query = words.join(' ');
  const admin = await cli.admin();
  const { count, isAll } = await admin.count(query, { queue, budget: '5s' });
  const found = `${isAll ? '' : 'at least '}${count} jobs of queue "${queue}"`;
  if (cli.globals.dryRun) {
    cli.talk.say(`would ${verb} ${found}, except those whose status does not allow it`);
    return EXIT.done;
  }
  if (!cli.globals.yes && (count > 0 || !isAll)) {
    await cli.talk.confirm(`${verb[0]?.toUpperCase()}${verb.slice(1)} ${found}?`, cli.signal);
  }
  const result = await change(admin, queue, query, { signal: cli.signal });
  const fields = [
    { title: 'done', of: (row: BulkResult) => row.done },
    { title: 'left', of: (row: BulkResult) => row.left },
  ];
  cli.out.one(result, fields, String(result.done));
  if (result.left > 0) cli.talk.say('left are jobs whose status does not allow it, or that open transactions hold');
  return EXIT.done;
}
