import type { Command } from 'commander';
import { EXIT } from '../../output/failure.ts';
import type { DynamoFlags } from '../../setup/dynamo-table.ts';
import { durationOption, wholeNumber } from '../../setup/globals.ts';
import { examples } from '../../setup/help.ts';
import { type Cli, run } from '../../setup/run.ts';
import { readPayload, timeArgument } from '../job-add.ts';

interface ChangeFlags extends DynamoFlags {
  readonly payload?: string;
  readonly file?: string;
  readonly priority?: number;
  readonly runAt?: Date;
  readonly expiresAt?: Date;
  readonly attempts?: number;
  readonly onError?: string;
  readonly tag?: readonly string[];
}

/** `pawl job update ID` and `pawl job wait ID`. */
export function addJobChange(job: Command): void {
  const update = job
    .command('update <id>')
    .description('change a job that waits; what is left out stays')
    .option('--payload <json>', 'another payload; "-" reads it from stdin')
    .option('--file <file>', 'read the payload from a file')
    .option('--priority <n>', 'lower runs first', wholeNumber(-32_768, 32_767))
    .option('--run-at <time>', 'the earliest time: ISO 8601, or a delay such as 10m', timeArgument)
    .option('--expires-at <time>', 'cancel it unless it has begun by then: ISO 8601, or 10m from now', timeArgument)
    .option('--attempts <n>', 'in place of those of its kind', wholeNumber(1, 1000))
    .option('--on-error <kind>', 'the kind of its dead letter, in place of that of its kind')
    .option('--tag <tag...>', 'words to find it by, in place of those that it has');
  examples(update, ['pawl job update 1042 --run-at 10m', `pawl job update 1042 --payload '{"to":"bob"}' --priority 5`]);
  update.action((id: string, flags: ChangeFlags, self: Command) =>
    run(self, (cli) => updateOne(cli, id, flags), { writes: true }),
  );
  const wait = job
    .command('wait <id>')
    .description('wait until a job has ended, and print its result; 1 when it ended otherwise than complete')
    .addOption(durationOption('--for <duration>', 'how long to wait', '30s'));
  examples(wait, ['pawl job wait 1042', 'pawl job wait $(pawl job add reports build -q) --for 10m']);
  wait.action((id: string, { for: timeout }: { for: number }, self: Command) =>
    run(self, (cli) => waitOne(cli, id, timeout)),
  );
}

async function updateOne(cli: Cli, id: string, flags: ChangeFlags): Promise<number> {
  const { payload: given, file, tag: tags, dynamodb: _table, region: _region, endpoint: _endpoint, ...rest } = flags;
  const admin = await cli.admin();
  if (cli.globals.dryRun) {
    const { status } = await admin.get(id);
    cli.talk.say(`would change job ${id}, which is ${status}`);
    return EXIT.done;
  }
  const payload = given === undefined && file === undefined ? {} : { payload: await readPayload(given, file) };
  const changed = await admin.update(id, { ...rest, tags, ...payload });
  const fields = [
    { title: 'id', of: () => changed.id },
    { title: 'status', of: () => changed.status },
  ];
  cli.out.one(changed, fields, changed.id);
  return EXIT.done;
}

async function waitOne(cli: Cli, id: string, timeout: number): Promise<number> {
  const result = await (await cli.admin()).waitFor(id, { timeout, signal: cli.signal });
  cli.out.one({ id, result }, [{ title: 'result', of: (row) => row.result }], JSON.stringify(result));
  return EXIT.done;
}
