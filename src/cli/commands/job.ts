import type { Command } from 'commander';
import type { JobLock } from '../../lock/index.ts';
import type { AnyQueueAdmin, Explanation, JobRecord, JobTransition } from '../../queue/index.ts';
import { EXIT, exitCodeOf, messageOf, nextStepOf } from '../output/failure.ts';
import type { Field } from '../output/output.ts';
import { addDynamoFlagsToAll } from '../setup/dynamo-table.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';
import { addJobBulk } from './job/bulk.ts';
import { addJobChange } from './job/change.ts';
import { addJobAdd, readPayload } from './job-add.ts';
import { addJobList } from './job-list.ts';

/** `pawl job list|get|add|update|wait|retry|finish|skip|redrive|cancel|erase|purge|retry-all|cancel-all|move|search`. */
export function addJob(program: Command): void {
  const job = program.command('job').description('show, add, retry and cancel jobs');
  examples(job, ['pawl job list --status error', 'pawl job get 1042']);
  addJobList(job);
  const get = job.command('get <id>').description('one job: its state, why it is not running, and its history');
  examples(get, ['pawl job get 1042', 'pawl job get 1042 -o json']);
  get.action((id: string, _options: object, self: Command) => run(self, (cli) => showJob(cli, id)));
  addJobAdd(job);
  addJobChange(job);
  const retry = job
    .command('retry <id...>')
    .description('put jobs that ended in error, or were cancelled, back to new');
  examples(retry, ['pawl job retry 1042', 'pawl job list --status error -q | xargs pawl job retry']);
  retry.action((ids: string[], _options: object, self: Command) =>
    run(self, (cli) => each(cli, ids, 'retry', (admin, id) => admin.retry(id)), { writes: true }),
  );
  const finish = job
    .command('finish <id...>')
    .description('complete jobs that wait, ended in error or were cancelled, without running them')
    .option('--result <json>', 'the result of each of them; "-" reads it from stdin');
  examples(finish, ['pawl job finish 1042', `pawl job finish 1042 --result '{"by":"hand"}'`]);
  finish.action((ids: string[], { result }: { result?: string }, self: Command) => {
    const finishAll = async (cli: Cli): Promise<number> => {
      const options = result === undefined ? {} : { result: await readPayload(result, undefined) };
      return each(cli, ids, 'finish', (admin, id) => admin.finish(id, options));
    };
    return run(self, finishAll, { writes: true });
  });
  const skip = job
    .command('skip <id...>')
    .description('let the keys go on past these jobs, which ended in error and block them');
  examples(skip, ['pawl job skip 1042', 'pawl job list --status error -q | xargs pawl job skip']);
  skip.action((ids: string[], _options: object, self: Command) =>
    run(self, (cli) => each(cli, ids, 'skip', (admin, id) => admin.skip(id)), { writes: true }),
  );
  const redrive = job
    .command('redrive <id...>')
    .description('put the jobs that these dead letters name back to work, and end the letters');
  examples(redrive, ['pawl job redrive 1042', 'pawl job list --kind unsent --status new -q | xargs pawl job redrive']);
  redrive.action((ids: string[], _options: object, self: Command) =>
    run(self, (cli) => each(cli, ids, 'redrive', redriven), { writes: true }),
  );
  const cancel = job.command('cancel <id...>').description('cancel jobs; the signal of a running one is aborted');
  cancel.option('--reason <text>', 'the reason, stored with the job');
  examples(cancel, ['pawl job cancel 1042 --reason "sent twice"', 'pawl job cancel 1042 1043 --yes']);
  cancel.action((ids: string[], { reason }: { reason?: string }, self: Command) =>
    run(
      self,
      (cli) => each(cli, ids, 'cancel', (admin, id) => admin.cancel(id, reason === undefined ? {} : { reason })),
      {
        writes: true,
      },
    ),
  );
  const erase = job
    .command('erase <id...>')
    .description('erase jobs that wait or have ended: payload, result, errors, history');
  examples(erase, ['pawl job erase 1042', 'pawl job erase 1042 1043 --yes']);
  erase.action((ids: string[], _options: object, self: Command) =>
    run(self, (cli) => each(cli, ids, 'erase', erased), { writes: true }),
  );
  addJobBulk(job);
  addDynamoFlagsToAll(job, 'the jobs are in this table');
}

interface Shown extends JobRecord {
  readonly explanation: Explanation;
  readonly history: readonly JobTransition[];
  readonly locks: readonly JobLock[];
}

const FIELDS: readonly Field<Shown>[] = [
  { title: 'id', of: (job) => job.id },
  { title: 'queue', of: (job) => job.queue },
  { title: 'kind', of: (job) => job.kind },
  { title: 'key', of: (job) => job.key },
  { title: 'group', of: (job) => job.group ?? undefined },
  { title: 'status', of: (job) => job.status },
  { title: 'why', of: (job) => job.explanation.reasons.map(({ text }) => text).join('\n') },
  { title: 'priority', of: (job) => job.priority },
  { title: 'attempt', of: (job) => `${job.attempt} of ${job.attempts}` },
  { title: 'expires', of: (job) => job.expiresAt },
  { title: 'tags', of: (job) => job.tags.join(', ') || undefined },
  { title: 'enqueued', of: (job) => job.enqueuedAt },
  { title: 'schedule', of: (job) => job.schedule?.name },
  { title: 'tick', of: (job) => job.schedule?.at },
  { title: 'run at', of: (job) => job.runAt },
  { title: 'claimed', of: (job) => job.claimedAt },
  { title: 'settled', of: (job) => job.settledAt },
  { title: 'process', of: (job) => job.processId },
  { title: 'error', of: (job) => job.error },
  { title: 'progress', of: (job) => job.progress },
  { title: 'result', of: (job) => job.result },
  { title: 'meta', of: (job) => job.meta },
  { title: 'payload', of: (job) => job.payload },
];

const HISTORY: readonly Field<JobTransition>[] = [
  { title: 'AT', of: (move) => move.at },
  { title: 'FROM', of: (move) => move.from },
  { title: 'TO', of: (move) => move.to },
  { title: 'ATTEMPT', of: (move) => move.attempt, align: 'right' },
  { title: 'REASON', of: (move) => move.reason },
  { title: 'WORKER', of: (move) => move.worker },
  { title: 'ERROR', of: (move) => move.error?.split('\n')[0], wraps: true },
];

const LOCKS: readonly Field<JobLock>[] = [
  { title: 'LOCK', of: (lock) => lock.name },
  { title: 'NAMESPACE', of: (lock) => lock.namespace || null },
  { title: 'STATE', of: (lock) => lock.outcome ?? lock.state },
  { title: 'MODE', of: (lock) => lock.mode },
  { title: 'TOKEN', of: (lock) => lock.token, align: 'right' },
  { title: 'SINCE', of: (lock) => lock.since },
  { title: 'ENDED', of: (lock) => lock.endedAt },
];

async function showJob(cli: Cli, id: string): Promise<number> {
  const admin = await cli.admin();
  const job = await admin.get(id);
  const [explanation, history, locks] = await Promise.all([admin.explain(id), admin.history(id), locksOf(cli, job.id)]);
  cli.out.one({ ...job, explanation, history, locks }, FIELDS, job.id);
  if (cli.out.format !== 'table' || cli.globals.quiet) return EXIT.done;
  cli.out.heading('history');
  cli.out.rows(history, HISTORY, (move) => move.reason);
  if (locks.length === 0) return EXIT.done;
  cli.out.heading('locks');
  cli.out.rows(locks, LOCKS, (lock) => lock.name);
  return EXIT.done;
}

/** On DynamoDB, a lock does not record the job that has acquired it. */
async function locksOf(cli: Cli, id: string): Promise<readonly JobLock[]> {
  if (cli.table !== undefined) return [];
  const { locksOfJobs } = await import('../../lock/index.ts');
  return locksOfJobs(await cli.engine(), [id]);
}

async function erased(admin: AnyQueueAdmin, id: string): Promise<string> {
  await admin.erase(id);
  return 'erased';
}

async function redriven(admin: AnyQueueAdmin, letter: string): Promise<string> {
  const { id, status } = await admin.redrive(letter);
  return `job ${id} is ${status}`;
}

/** Changes the jobs one after another; a refusal does not stop the others. @returns the exit code of the first refusal */
async function each(
  cli: Cli,
  ids: readonly string[],
  verb: 'retry' | 'finish' | 'skip' | 'redrive' | 'cancel' | 'erase',
  change: (admin: AnyQueueAdmin, id: string) => Promise<string>,
): Promise<number> {
  const { dryRun, yes } = cli.globals;
  const admin = await cli.admin();
  const asks = verb === 'erase' || (verb === 'cancel' && ids.length > 1);
  if (asks && !yes && !dryRun) {
    const what = ids.length === 1 ? `job ${ids[0]}` : `${ids.length} jobs`;
    await cli.talk.confirm(`${verb === 'erase' ? 'Erase' : 'Cancel'} ${what}?`, cli.signal);
  }
  const done: { id: string; status: string }[] = [];
  const fields = [
    { title: 'ID', of: (row: { id: string }) => row.id },
    { title: 'STATUS', of: (row: { status: string }) => row.status },
  ];
  const print = (): void => cli.out.rows(done, fields, (row) => row.id);
  let code: number = EXIT.done;
  for (const id of ids) {
    cli.signal.throwIfAborted();
    try {
      done.push({ id, status: dryRun ? (await admin.get(id)).status : await change(admin, id) });
    } catch (error) {
      const known = exitCodeOf(error);
      if (ids.length === 1) throw error;
      if (known === EXIT.unreachable) {
        if (done.length > 0) print();
        throw error;
      }
      cli.talk.fail(messageOf(error), nextStepOf(error));
      if (code === EXIT.done) code = known;
    }
  }
  if (dryRun) cli.talk.say(`would ${verb} ${done.length} of ${ids.length}`);
  print();
  return code;
}
