import type { Command } from 'commander';
import type { DamagedVersion, FileVersion, PastVersion, SweepReport } from '../../files/index.ts';
import { EXIT } from '../output/failure.ts';
import type { Field } from '../output/output.ts';
import { wholeNumber } from '../setup/globals.ts';
import { examples } from '../setup/help.ts';
import { openFiles, orFileNotFound, type StoreFlags, storeOptions } from '../setup/open-files.ts';
import { type Cli, run } from '../setup/run.ts';
import { type GetFlags, get, type PutFlags, put, VERSION } from './file-bytes.ts';

const version = wholeNumber(0, Number.MAX_SAFE_INTEGER);

/** `pawl file put|get|list|history|restore|sweep|reconcile|rearm`. */
export function addFile(program: Command): void {
  const file = program
    .command('file')
    .description('versioned files: bytes in a folder or bucket, versions in the database');
  examples(file, ['pawl file put doc-1 ./report.pdf --store ./objects', 'pawl file history doc-1']);
  const add = (usage: string, text: string, shown: readonly string[]): Command =>
    examples(storeOptions(file.command(usage).description(text)), shown);
  addBytes(add);
  addVersions(add);
  addStore(add);
}

type Add = (usage: string, text: string, shown: readonly string[]) => Command;

function addBytes(add: Add): void {
  add('put <id> <path>', 'write a document’s next version from a file; "-" reads stdin', [
    'pawl file put doc-1 ./report.pdf',
    'tar c notes | pawl file put notes - --if-version 3',
  ])
    .option('--if-version <n>', 'the version that it must replace; 0: there must be none', version)
    .option('--author <name>', 'the author, for the history (default: the user’s name)')
    .option('--content-type <type>', 'stored with the version')
    .action((id: string, path: string, flags: PutFlags, self: Command) =>
      run(self, (cli) => put(cli, id, path, flags), { writes: true }),
    );
  add('get <id> <path>', 'read a document into a file; "-" writes to stdout', [
    'pawl file get doc-1 ./report.pdf',
    'pawl file get notes - --at 3 | tar t',
  ])
    .option('--at <version>', 'an earlier version', version)
    .option('--force', 'replace an existing file')
    .action((id: string, path: string, flags: GetFlags, self: Command) =>
      run(self, (cli) => get(cli, id, path, flags)),
    );
}

function addVersions(add: Add): void {
  add('list [prefix]', 'documents, by their ids', ['pawl file list', 'pawl file list reports/ --limit 1000 -q'])
    .option('--limit <n>', 'how many', wholeNumber(1, 10_000), 100)
    .action((prefix: string | undefined, flags: StoreFlags & { limit: number }, self: Command) =>
      run(self, (cli) => list(cli, prefix, flags)),
    );
  add('history <id>', 'the versions of a document, newest first', [
    'pawl file history doc-1',
    'pawl file history doc-1 -o jsonl',
  ])
    .option('--limit <n>', 'how many', wholeNumber(1, 10_000), 20)
    .action((id: string, flags: StoreFlags & { limit: number }, self: Command) =>
      run(self, (cli) => history(cli, id, flags)),
    );
  add('restore <id> <version>', 'make an earlier version the next one', [
    'pawl file restore doc-1 3',
    'pawl file restore doc-1 3 --if-version 7',
  ])
    .option('--if-version <n>', 'the version that it must replace', version)
    .action((id: string, from: string, flags: StoreFlags & { ifVersion?: number }, self: Command) =>
      run(self, (cli) => restore(cli, id, version(from), flags), { writes: true }),
    );
}

function addStore(add: Add): void {
  add('sweep', 'delete objects from the store that no version needs any more', [
    'pawl file sweep',
    'pawl file sweep --dry-run',
  ]).action((flags: StoreFlags, self: Command) => run(self, (cli) => sweep(cli, flags), { writes: true }));
  add('reconcile', 'compare the store with the database; changes nothing without --quarantine', [
    'pawl file reconcile',
    'pawl file reconcile --quarantine',
  ])
    .option('--quarantine', 'move names that belong to no version to quarantine')
    .option('--from <place>', 'continue where an earlier call has stopped')
    .action((flags: CompareFlags, self: Command) =>
      run(self, (cli) => compare(cli, flags), { writes: flags.quarantine === true }),
    );
  add('rearm', 'restart a collector that has stopped itself; reconcile before it', [
    'pawl file rearm',
    'pawl file rearm --yes',
  ]).action((flags: StoreFlags, self: Command) => run(self, (cli) => rearm(cli, flags), { writes: true }));
}

const LISTED: readonly Field<FileVersion>[] = [
  { title: 'ID', of: (row) => row.id },
  { title: 'VERSION', of: (row) => String(row.version), align: 'right' },
  { title: 'SIZE', of: (row) => String(row.size), align: 'right' },
  { title: 'WRITTEN', of: (row) => row.writtenAt },
  { title: 'AUTHOR', of: (row) => row.author },
  { title: 'SHA-256', of: (row) => row.sha256.slice(0, 12) },
];

const PAST: readonly Field<PastVersion>[] = [
  ...LISTED.slice(1),
  { title: 'STATE', of: (row) => row.state },
  { title: 'KEPT UNTIL', of: (row) => row.keptUntil },
];

async function list(cli: Cli, prefix: string | undefined, flags: StoreFlags & { limit: number }): Promise<number> {
  const files = await openFiles(cli, flags);
  const found = await files.list({ limit: flags.limit, ...(prefix !== undefined && { prefix }) });
  cli.out.rows(found, LISTED, (row) => row.id);
  if (found.length === flags.limit) cli.talk.say(`there may be more: --limit shows up to 10000`);
  return EXIT.done;
}

async function history(cli: Cli, id: string, flags: StoreFlags & { limit: number }): Promise<number> {
  const past = await (await openFiles(cli, flags)).history(id, { limit: flags.limit });
  cli.out.rows(past, PAST, (row) => String(row.version));
  return EXIT.done;
}

async function restore(
  cli: Cli,
  id: string,
  from: number,
  flags: StoreFlags & { ifVersion?: number },
): Promise<number> {
  const files = await openFiles(cli, flags);
  const found = await files.stat(id, from).catch(orFileNotFound);
  if (cli.globals.dryRun) {
    cli.talk.say(`would make version ${found.version} of "${id}" (${found.size} bytes) the next one`);
    return EXIT.done;
  }
  const change = flags.ifVersion === undefined ? {} : { ifVersion: flags.ifVersion };
  const written = await files.restore(id, from, { signal: cli.signal, ...change });
  cli.out.one(written, VERSION, String(written.version));
  return EXIT.done;
}

async function sweep(cli: Cli, flags: StoreFlags): Promise<number> {
  const files = await openFiles(cli, flags);
  if (cli.globals.dryRun) {
    const state = await files.collector();
    cli.out.one(
      state,
      (['due', 'pending', 'retired', 'deleting', 'deleted', 'haltedBecause'] as const).map((title) => ({
        title,
        of: (row: typeof state) => row[title],
      })),
      String(state.due),
    );
    return EXIT.done;
  }
  const report = await files.sweep({ signal: cli.signal });
  const fields = (['condemned', 'deleted', 'deletedAgain', 'failed'] as const).map((title) => ({
    title,
    of: (row: SweepReport) => row[title],
  }));
  cli.out.one(report, fields, String(report.deleted));
  return report.failed > 0 ? EXIT.failed : EXIT.done;
}

const DAMAGED: readonly Field<DamagedVersion>[] = [
  { title: 'ID', of: (row) => row.id },
  { title: 'VERSION', of: (row) => String(row.version), align: 'right' },
  { title: 'DAMAGE', of: (row) => row.damage },
  { title: 'OBJECT', of: (row) => row.object },
];

type CompareFlags = StoreFlags & { readonly quarantine?: boolean; readonly from?: string };

async function compare(cli: Cli, flags: CompareFlags): Promise<number> {
  const files = await openFiles(cli, flags);
  const isDry = flags.quarantine !== true || cli.globals.dryRun;
  const from = flags.from === undefined ? {} : { from: flags.from };
  const report = await files.reconcile({ dryRun: isDry, signal: cli.signal, ...from });
  const { strangers, damaged, quarantined, failed, seen, next } = report;
  if (cli.out.format === 'table' && !cli.globals.quiet) {
    if (damaged.length > 0) cli.out.rows(damaged, DAMAGED, (row) => row.object);
    for (const name of strangers) cli.talk.say(`${quarantined.includes(name) ? 'quarantined' : 'stranger'}  ${name}`);
    for (const { name, error } of failed) cli.talk.say(`failed  ${name === '' ? 'the list' : name}: ${error}`);
    const sum = `${seen} names seen, ${strangers.length} strangers, ${damaged.length} versions damaged`;
    cli.talk.say(failed.length === 0 ? sum : `${sum}, ${failed.length} failed`);
    if (next !== null) cli.talk.say(`there is more: continue with --from '${next}'`);
  } else {
    cli.out.one(report, [], String(strangers.length + damaged.length));
  }
  const isWhole = damaged.length === 0 && strangers.length === quarantined.length && failed.length === 0;
  return isWhole && next === null ? EXIT.done : EXIT.failed;
}

async function rearm(cli: Cli, flags: StoreFlags): Promise<number> {
  const files = await openFiles(cli, flags);
  const { haltedBecause } = await files.collector();
  if (haltedBecause === null) {
    cli.talk.say('the collector has not stopped itself; nothing was done');
    return EXIT.done;
  }
  if (cli.globals.dryRun) {
    cli.talk.say(`would restart the collector, which has stopped because ${haltedBecause}`);
    return EXIT.done;
  }
  if (!cli.globals.yes) await cli.talk.confirm(`It stopped because ${haltedBecause}. Restart it?`, cli.signal);
  await files.rearm();
  return EXIT.done;
}
