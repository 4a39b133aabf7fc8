import type { Command } from 'commander';
import type { ScheduleOptions } from '../../../queue/index.ts';
import { EXIT } from '../../output/failure.ts';
import type { DynamoFlags } from '../../setup/dynamo-table.ts';
import { wholeNumber } from '../../setup/globals.ts';
import { examples } from '../../setup/help.ts';
import { type Cli, run } from '../../setup/run.ts';
import { readPayload } from '../job-add.ts';

interface SetFlags extends DynamoFlags {
  readonly timezone?: string;
  readonly key?: string;
  readonly group?: string;
  readonly priority?: number;
  readonly missed?: string;
  readonly overlap?: ScheduleOptions['overlap'];
  readonly jitter?: string;
  readonly file?: string;
}

interface SetRequest {
  readonly cron: string;
  readonly kind: string;
  readonly payload: string | undefined;
  readonly flags: SetFlags;
}

/** `pawl schedule set|remove`. */
export function addScheduleSet(schedule: Command): void {
  const set = schedule
    .command('set <queue> <name> <cron> <kind> [payload]')
    .description(
      'set a schedule, new or in place of the one of this name; the payload is JSON, "-" reads it from stdin',
    )
    .option('--timezone <name>', 'an IANA name, such as Europe/Berlin; default: UTC')
    .option('--key <key>', 'the key of its jobs')
    .option('--group <group>', 'the queue declares how many jobs of one group run at a time')
    .option('--priority <n>', 'lower runs first', wholeNumber(-32_768, 32_767))
    .option(
      '--missed <what>',
      'ticks that no worker saw: skip, last, all, or a time such as 1d for all of the last day',
    )
    .option('--overlap <what>', 'a tick while a job of it is outstanding: queue or skip')
    .option('--jitter <time>', 'each job waits for a random part of it after its tick')
    .option('--file <file>', 'read the payload from a file');
  examples(set, [
    `pawl schedule set reports nightly '0 3 * * *' daily --timezone Europe/Berlin`,
    `pawl schedule set reports hourly @hourly sum '{"of":"orders"}' --dry-run`,
  ]);
  set.action(
    (
      queue: string,
      name: string,
      cron: string,
      kind: string,
      payload: string | undefined,
      flags: SetFlags,
      self: Command,
    ) => run(self, (cli) => setOne(cli, queue, name, { cron, kind, payload, flags }), { writes: true, queue }),
  );
  const remove = schedule
    .command('remove <queue> <name>')
    .description('end a schedule; what it has enqueued stays, and a program that declares it makes it anew');
  examples(remove, ['pawl schedule remove reports nightly', 'pawl schedule remove reports nightly --yes']);
  remove.action((queue: string, name: string, _options: object, self: Command) =>
    run(self, (cli) => removeOne(cli, queue, name), { writes: true, queue }),
  );
}

async function setOne(
  cli: Cli,
  queue: string,
  name: string,
  { cron, kind, payload, flags }: SetRequest,
): Promise<number> {
  const { file, missed, jitter, dynamodb: _table, region: _region, endpoint: _endpoint, ...rest } = flags;
  const options = {
    ...rest,
    cron,
    kind,
    payload: await readPayload(payload, file),
    ...(missed !== undefined && { missed: readMissed(missed) }),
    ...(jitter !== undefined && { jitter }),
  } as ScheduleOptions;
  const admin = await cli.admin();
  const { nextTicks } = await import('../../../queue/index.ts');
  if (cli.globals.dryRun) {
    await admin.stats(queue);
    const [, next] = nextTicks(cron, flags.timezone ?? 'UTC', new Date(), 2);
    cli.talk.say(
      `would set schedule "${name}" of queue "${queue}": ${kind}, next at ${next?.toISOString() ?? 'no time'}`,
    );
    return EXIT.done;
  }
  await admin.setSchedule(queue, name, options);
  const record = await admin.schedule(queue, name);
  if (record.pausedAt !== null) {
    cli.talk.say(`it is paused, and stays so; pawl schedule resume ${queue} ${name} ends that`);
  }
  cli.out.one(
    record,
    [
      { title: 'schedule', of: (row) => row.name },
      { title: 'next', of: (row) => row.nextAt },
    ],
    name,
  );
  return EXIT.done;
}

/** A known word stays as it is; any other value is a time, which the library checks. */
function readMissed(value: string): unknown {
  return ['skip', 'last', 'all'].includes(value) ? value : { all: value };
}

async function removeOne(cli: Cli, queue: string, name: string): Promise<number> {
  const admin = await cli.admin();
  const what = `schedule "${name}" of queue "${queue}"`;
  const { cron, kind, ofSet } = await admin.schedule(queue, name);
  if (cli.globals.dryRun) {
    cli.talk.say(`would remove ${what}`);
    return EXIT.done;
  }
  const comesBack = ofSet ? ' A program declares it in its set, and will make it anew.' : '';
  if (!cli.globals.yes) {
    await cli.talk.confirm(`Remove ${what}, which enqueues ${kind} at ${cron}?${comesBack}`, cli.signal);
  }
  await admin.unschedule(queue, name);
  cli.out.one({ queue, schedule: name, removed: true }, [{ title: 'removed', of: () => name }], name);
  return EXIT.done;
}
