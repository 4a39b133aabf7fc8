import type { Command } from 'commander';
import { formatDuration } from '../../base/time/duration.ts';
import type { ScheduleRecord, ScheduleRun } from '../../queue/index.ts';
import { EXIT } from '../output/failure.ts';
import type { Field } from '../output/output.ts';
import { addDynamoFlagsToAll } from '../setup/dynamo-table.ts';
import { wholeNumber } from '../setup/globals.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';
import { addScheduleSet } from './queue/schedule-set.ts';

/** How many future ticks `show` prints. */
const SHOWN = 5;

/** `pawl schedule list|show|runs|set|remove|pause|resume|run`. */
export function addSchedule(program: Command): void {
  const schedule = program.command('schedule').description('show, set, pause, resume, run and remove schedules');
  examples(schedule, ['pawl schedule list', 'pawl schedule run reports nightly']);
  const list = schedule.command('list [queue]').description('the schedules of one queue, or of all');
  examples(list, ['pawl schedule list', 'pawl schedule list reports -o json']);
  list.action((queue: string | undefined, _options: object, self: Command) =>
    run(self, (cli) => listAll(cli, queue), { queue }),
  );
  const show = schedule.command('show <queue> <name>').description('one schedule, with its next ticks and its payload');
  examples(show, ['pawl schedule show reports nightly', 'pawl schedule show reports nightly -o json']);
  show.action((queue: string, name: string, _options: object, self: Command) =>
    run(self, (cli) => showOne(cli, queue, name), { queue }),
  );
  const runs = schedule
    .command('runs <queue> <name>')
    .description('what it has enqueued, newest first: the tick and the job')
    .option('--limit <n>', 'show at most this many', wholeNumber(1, 100), 10);
  examples(runs, ['pawl schedule runs reports nightly', 'pawl schedule runs reports nightly --limit 100 -o json']);
  runs.action((queue: string, name: string, { limit }: { limit: number }, self: Command) =>
    run(self, (cli) => showRuns(cli, queue, name, limit), { queue }),
  );
  addScheduleSet(schedule);
  for (const [verb, does] of [
    ['pause', 'enqueue nothing until it is resumed; ticks during the pause are skipped'],
    ['resume', 'enqueue again, from the next tick on'],
  ] as const) {
    const command = schedule.command(`${verb} <queue> <name>`).description(does);
    examples(command, [`pawl schedule ${verb} reports nightly`, `pawl schedule ${verb} reports nightly --dry-run`]);
    command.action((queue: string, name: string, _options: object, self: Command) =>
      run(self, (cli) => turn(cli, verb, queue, name), { writes: true, queue }),
    );
  }
  const now = schedule.command('run <queue> <name>').description('enqueue its job now');
  examples(now, ['pawl schedule run reports nightly', 'id=$(pawl schedule run reports nightly -q)']);
  now.action((queue: string, name: string, _options: object, self: Command) =>
    run(self, (cli) => runNow(cli, queue, name), { writes: true, queue }),
  );
  addDynamoFlagsToAll(schedule, 'the schedules are in this table');
}

const FIELDS: readonly Field<ScheduleRecord>[] = [
  { title: 'QUEUE', of: (row) => row.queue },
  { title: 'SCHEDULE', of: (row) => row.name },
  { title: 'CRON', of: (row) => row.cron },
  { title: 'TIMEZONE', of: (row) => row.timezone },
  { title: 'KIND', of: (row) => row.kind },
  { title: 'NEXT', of: (row) => row.nextAt },
  { title: 'LAST', of: (row) => row.lastAt },
  { title: 'PAUSED', of: (row) => row.pausedAt },
];

async function listAll(cli: Cli, queue: string | undefined): Promise<number> {
  const admin = await cli.admin();
  const schedules = await admin.schedules(queue);
  if (queue !== undefined && schedules.length === 0) await admin.stats(queue); // throws if there is no such queue
  cli.out.rows(schedules, FIELDS, (row) => row.name);
  if (schedules.length === 0)
    cli.talk.say(
      'there is no schedule: a program declares its own by queue.schedule(…), and pawl schedule set makes one',
    );
  return EXIT.done;
}

const DETAILS: readonly Field<ScheduleRecord & { readonly next: readonly Date[] }>[] = [
  ...FIELDS.map((field) => ({ ...field, title: field.title.toLowerCase() })),
  {
    title: 'then',
    of: ({ next }) =>
      next.length < 2
        ? null
        : next
            .slice(1)
            .map((at) => at.toISOString())
            .join('\n'),
  },
  {
    title: 'missed',
    of: (row) => (row.missedForMs === null ? row.missed : `${row.missed} of ${formatDuration(row.missedForMs)}`),
  },
  { title: 'overlap', of: (row) => row.overlap },
  { title: 'of set', of: (row) => (row.ofSet ? 'yes' : null) },
  { title: 'jitter', of: (row) => (row.jitterMs === null ? null : formatDuration(row.jitterMs)) },
  { title: 'key', of: (row) => row.key },
  { title: 'group', of: (row) => row.group },
  { title: 'priority', of: (row) => row.priority },
  { title: 'payload', of: (row) => row.payload },
];

async function showOne(cli: Cli, queue: string, name: string): Promise<number> {
  const { nextTicks } = await import('../../queue/index.ts');
  const schedule = await (await cli.admin()).schedule(queue, name);
  const next = nextTicks(schedule.cron, schedule.timezone, schedule.nextAt, SHOWN);
  cli.out.one({ ...schedule, next }, DETAILS, name);
  return EXIT.done;
}

const RUNS: readonly Field<ScheduleRun>[] = [
  { title: 'TICK', of: (row) => row.at },
  { title: 'JOB', of: (row) => row.job, align: 'right' },
  { title: 'STATUS', of: (row) => row.status ?? 'removed' },
];

async function showRuns(cli: Cli, queue: string, name: string, limit: number): Promise<number> {
  const runs = await (await cli.admin()).scheduleRuns(queue, name, { limit });
  cli.out.rows(runs, RUNS, (row) => row.job);
  if (runs.length === 0) cli.talk.say('it has enqueued nothing yet');
  return EXIT.done;
}

async function turn(cli: Cli, verb: 'pause' | 'resume', queue: string, name: string): Promise<number> {
  const admin = await cli.admin();
  const done = verb === 'pause' ? 'paused' : 'resumed';
  const what = `schedule "${name}" of queue "${queue}"`;
  if (cli.globals.dryRun) {
    await admin.schedule(queue, name);
    cli.talk.say(`${what} would be ${done}`);
    return EXIT.done;
  }
  await (verb === 'pause' ? admin.pauseSchedule(queue, name) : admin.resumeSchedule(queue, name));
  cli.talk.say(`${what} is ${done}${verb === 'pause' ? `; pawl schedule resume ${queue} ${name} ends that` : ''}`);
  cli.out.one({ queue, schedule: name, [done]: true }, [{ title: done, of: () => name }], name);
  return EXIT.done;
}

async function runNow(cli: Cli, queue: string, name: string): Promise<number> {
  const admin = await cli.admin();
  if (cli.globals.dryRun) {
    const { kind } = await admin.schedule(queue, name);
    cli.talk.say(`a job of kind ${kind} would be enqueued in queue "${queue}"`);
    return EXIT.done;
  }
  const added = await admin.runSchedule(queue, name);
  if (added.duplicate) cli.talk.say(`it exists already, as job ${added.id}`);
  const fields = [
    { title: 'id', of: () => added.id },
    { title: 'status', of: () => added.status },
  ];
  cli.out.one(added, fields, added.id);
  return EXIT.done;
}
