import type { Command } from 'commander';
import { type JobRecord, type SearchPage, searchFilter } from '../../queue/index.ts';
import { EXIT } from '../output/failure.ts';
import type { Field } from '../output/output.ts';
import { wholeNumber } from '../setup/globals.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';

interface ListFlags {
  readonly queue?: string;
  readonly limit: number;
  readonly after?: string;
}

/** Each is a filter of a search. */
const FILTERS = {
  status: 'only jobs that are new, in-progress, complete, error or cancelled',
  kind: 'only of this kind',
  key: 'only of this key',
  tag: 'only with this tag',
  since: 'enqueued since: a date, ISO 8601, or back from now such as 2h',
  until: 'enqueued until: the same',
} as const;

type FilterFlags = { readonly [F in keyof typeof FILTERS]?: string };

/** `pawl job list` and `pawl job search QUERY`. */
export function addJobList(job: Command): void {
  const list = withLimits(job.command('list').description('jobs, newest first'));
  for (const [name, about] of Object.entries(FILTERS)) list.option(`--${name} <${name}>`, about);
  examples(list, ['pawl job list --status error', 'pawl job list --queue emails --since 2h -q']);
  list.action((flags: ListFlags & FilterFlags, self: Command) =>
    run(self, (cli) => show(cli, queryOf(flags), flags), { queue: flags.queue }),
  );
  const search = withLimits(
    job
      .command('search <query...>')
      .description(
        'jobs whose payload or error has these words; "a phrase", key:, tag:, kind:, status:, since:, until:',
      ),
  );
  examples(search, ['pawl job search ada@example.org status:error', `pawl job search '"mailbox full"' since:2h`]);
  search.action((words: string[], flags: ListFlags, self: Command) =>
    run(self, (cli) => show(cli, words.join(' '), flags), { queue: flags.queue }),
  );
}

function withLimits(command: Command): Command {
  return command
    .option('--queue <queue>', 'only of this queue')
    .option('--limit <n>', 'show at most this many', wholeNumber(1, 10_000), 20)
    .option('--after <cursor>', 'the next page: the cursor that the page before has printed');
}

function queryOf(flags: FilterFlags): string {
  const names = Object.keys(FILTERS) as (keyof typeof FILTERS)[];
  return names.flatMap((name) => (flags[name] === undefined ? [] : [searchFilter(name, flags[name])])).join(' ');
}

const FIELDS: readonly Field<JobRecord>[] = [
  { title: 'ID', of: (job) => job.id, align: 'right' },
  { title: 'QUEUE', of: (job) => job.queue },
  { title: 'KIND', of: (job) => job.kind },
  { title: 'KEY', of: (job) => job.key },
  { title: 'STATUS', of: (job) => job.status },
  { title: 'ATTEMPT', of: (job) => job.attempt, align: 'right' },
  { title: 'ENQUEUED', of: (job) => job.enqueuedAt },
  { title: 'SETTLED', of: (job) => job.settledAt },
  { title: 'ERROR', of: (job) => job.error?.split('\n')[0] },
];

async function show(cli: Cli, query: string, flags: ListFlags): Promise<number> {
  const { jobs, after } = await find(cli, query, flags);
  cli.out.rows(jobs, FIELDS, (job) => job.id);
  if (jobs.length === 0 && flags.queue !== undefined) await (await cli.admin()).stats(flags.queue); // throws if there is no such queue
  if (jobs.length === 0) cli.talk.say('no job matches');
  if (after !== null) cli.talk.say(`there are more: add --after ${after}`);
  return EXIT.done;
}

/** Reads pages up to the limit: a page takes bounded work, so it may be short, or empty, and have a next one. */
async function find(
  cli: Cli,
  query: string,
  { queue, limit, after: from }: ListFlags,
): Promise<Pick<SearchPage, 'jobs' | 'after'>> {
  const admin = await cli.admin();
  const jobs: JobRecord[] = [];
  let after: string | null | undefined = from;
  do {
    cli.signal.throwIfAborted();
    const page: SearchPage = await admin.search(query, { queue, after, limit: Math.min(limit - jobs.length, 1000) });
    jobs.push(...page.jobs);
    after = page.after;
  } while (after !== null && jobs.length < limit);
  return { jobs, after };
}
