import { writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import type { Command } from 'commander';
import type { PageRecord } from '../../actor/index.ts';
import { EXIT, orNotWritten } from '../output/failure.ts';
import type { Field } from '../output/output.ts';
import { openAdmin } from '../setup/actor-config.ts';
import { addDynamoFlagsToAll } from '../setup/dynamo-table.ts';
import { wholeNumber } from '../setup/globals.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';

/** `pawl page list|show|ack|resolve`. */
export function addPage(program: Command): void {
  const page = program.command('page').description('show, acknowledge and resolve pages: what needs a person');
  examples(page, ['pawl page list', 'pawl page show 7 --html page.html']);
  const list = page
    .command('list')
    .description('open pages, newest first')
    .option('--resolved', 'include resolved ones')
    .option('--actor <id>', 'only about this actor')
    .option('--before <id>', 'only pages older than this one: the last of the page before')
    .option('--limit <n>', 'show at most this many', wholeNumber(1, 10_000), 100);
  examples(list, ['pawl page list', 'pawl page list --resolved -o json']);
  list.action((flags: ListFlags, self: Command) => run(self, (cli) => listPages(cli, flags)));
  const show = page
    .command('show <id>')
    .description('one page, with its diagnostics')
    .option('--html <file>', 'write the diagnostics page: diagram, history, fields, errors, what to try');
  examples(show, ['pawl page show 7', 'pawl page show 7 --html page.html']);
  show.action((id: string, flags: { html?: string }, self: Command) =>
    run(self, (cli) => showPage(cli, id, flags.html)),
  );
  const ack = page
    .command('ack <id>')
    .description('acknowledge that a person is working on it')
    .option('--by <name>', 'the name of that person (default: you)');
  examples(ack, ['pawl page ack 7', 'pawl page ack 7 --by ada']);
  ack.action((id: string, { by }: { by?: string }, self: Command) =>
    run(self, (cli) => change(cli, id, 'acknowledged', (admin) => admin.ackPage(id, by ?? userInfo().username)), {
      writes: true,
    }),
  );
  const resolve = page
    .command('resolve <id>')
    .description('resolve it by hand; the next request for it opens it again');
  examples(resolve, ['pawl page resolve 7', 'pawl page list -q | xargs -n 1 pawl page resolve']);
  resolve.action((id: string, _options: object, self: Command) =>
    run(self, (cli) => change(cli, id, 'resolved', (admin) => admin.resolvePage({ id })), { writes: true }),
  );
  addDynamoFlagsToAll(page, 'the pages are in this table');
}

interface ListFlags {
  readonly resolved?: boolean;
  readonly actor?: string;
  readonly before?: string;
  readonly limit: number;
}

const LIST: readonly Field<PageRecord>[] = [
  { title: 'ID', of: (row) => row.id, align: 'right' },
  { title: 'SEVERITY', of: (row) => row.severity },
  { title: 'STATUS', of: (row) => (row.suppressed ? `${row.status}, suppressed` : row.status) },
  { title: 'OPENED', of: (row) => row.openedAt },
  { title: 'COUNT', of: (row) => row.count, align: 'right' },
  { title: 'ACTOR', of: (row) => row.actor, align: 'right' },
  { title: 'TAG', of: (row) => row.tag },
  { title: 'SUMMARY', of: (row) => row.summary },
];

async function listPages(cli: Cli, flags: ListFlags): Promise<number> {
  const { resolved, actor, before, limit } = flags;
  const admin = await openAdmin(cli);
  const pages = await admin.pages({ resolved, actor, before, limit });
  cli.out.rows(pages, LIST, (row) => row.id);
  if (pages.length === limit) cli.talk.say(`there may be more: add --before ${pages.at(-1)?.id ?? ''}`);
  if (pages.length === 0 && before === undefined) cli.talk.say('no page is open');
  return EXIT.done;
}

async function showPage(cli: Cli, id: string, html: string | undefined): Promise<number> {
  const admin = await openAdmin(cli);
  const page = await admin.getPage(id);
  if (html !== undefined) {
    const text = await admin.pageHtml(id);
    await writeFile(html, text).catch((error: unknown) => {
      throw orNotWritten(html, error);
    });
    cli.talk.say(`wrote ${html}`);
  }
  const more: readonly Field<PageRecord>[] = [
    { title: 'details', of: (row) => row.details },
    { title: 'root', of: (row) => row.root },
    { title: 'seen', of: (row) => row.seenAt },
    {
      title: 'acked',
      of: (row) => (row.ackedAt === null ? null : `${row.ackedAt.toISOString()} ${row.ackedBy ?? ''}`),
    },
    { title: 'resolved', of: (row) => row.resolvedAt },
  ];
  cli.out.one(page, [...LIST.map((field) => ({ ...field, title: field.title.toLowerCase() })), ...more], page.id);
  return EXIT.done;
}

async function change(
  cli: Cli,
  id: string,
  done: string,
  act: (admin: Awaited<ReturnType<typeof openAdmin>>) => Promise<boolean>,
): Promise<number> {
  const admin = await openAdmin(cli);
  const page = await admin.getPage(id);
  if (cli.globals.dryRun) cli.talk.say(`page ${id} would be ${done}`);
  else if (!(await act(admin))) cli.talk.say(`page ${id} was resolved already`);
  cli.out.one({ page: id, tag: page.tag, done }, [{ title: done, of: (row) => row.tag }], id);
  return EXIT.done;
}
