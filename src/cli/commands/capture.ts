import type { Command } from 'commander';
import type { CapturedChange, Culprit, Difference, LineStatus, Projection } from '../../capture/index.ts';
import { EXIT, Failure } from '../output/failure.ts';
import { type Field, json } from '../output/output.ts';
import { startProgress } from '../output/progress.ts';
import { printable } from '../output/table.ts';
import { openCapture, openCaptureAdmin } from '../setup/capture-config.ts';
import { examples } from '../setup/help.ts';
import { type Cli, type RunOptions, run } from '../setup/run.ts';

interface Flags {
  readonly into?: string;
  readonly again?: boolean;
}

/** `pawl capture plan|apply|verify|status|tail|replay|reconcile|detach`. */
export function addCapture(program: Command): void {
  const capture = program
    .command('capture')
    .description('follow the changes of tables: triggers, projections, history');
  examples(capture, ['pawl capture apply order', 'pawl capture status']);
  type Work = (cli: Cli, entity: string, flags: Flags) => Promise<number>;
  const add = (usage: string, text: string, work: Work, options?: RunOptions): Command => {
    const command = capture.command(usage).description(text);
    const example = `pawl capture ${usage.replace('<entity>', 'order')}`;
    examples(command, [example, `${example} ${options?.writes === true ? '--dry-run' : '-o json'}`]);
    return command.action((entity: string, flags: Flags, self: Command) =>
      run(self, (cli) => work(cli, entity, flags), options),
    );
  };
  add('plan <entity>', 'print the SQL that apply would run; exit 1 when there is something to do', plan);
  add('apply <entity>', 'install the triggers, and the tables of the projections', apply, { writes: true });
  add('verify <entity>', 'prove that no change is missed; exit 1 when one may be', verify);
  const status = capture.command('status [entity]').description('how far each consumer is behind, and why');
  examples(status, ['pawl capture status', 'pawl capture status order -o json']);
  status.action((entity: string | undefined, _flags: object, self: Command) =>
    run(self, (cli) => showStatus(cli, entity)),
  );
  add('tail <entity>', 'changes as they are committed, in tables with a history', tail, { endsBySignal: true });
  add('replay <entity>', 'project all entities once, while changes go on', replay, { writes: true })
    .option('--into <name>', 'only this projection')
    .option('--again', 'start from the beginning, even if a replay is under way');
  add(
    'reconcile <entity>',
    'compare every entity with its row, and repair wrong ones; exit 1 when there was one',
    reconcile,
    {
      writes: true,
    },
  ).option('--into <name>', 'only this projection');
  add('detach <entity>', 'remove the triggers and the log', detach, { writes: true });
}

const DIFFERENCES: readonly Field<Difference>[] = [
  { title: 'KIND', of: (row) => row.kind },
  { title: 'OBJECT', of: (row) => row.object },
  { title: 'PROBLEM', of: (row) => row.problem },
];

async function plan(cli: Cli, entity: string): Promise<number> {
  const { sql, differences } = await (await openCapture(cli, entity)).plan();
  if (cli.out.format === 'json') cli.out.one({ sql, differences }, [], entity);
  else if (sql !== '') cli.out.script(sql);
  cli.talk.say(differences.length === 0 ? 'there is nothing to do' : `${differences.length} things to do`);
  return differences.length === 0 ? EXIT.done : EXIT.failed;
}

async function apply(cli: Cli, entity: string): Promise<number> {
  const capture = await openCapture(cli, entity);
  const done = cli.globals.dryRun ? (await capture.plan()).differences : await capture.apply();
  cli.out.rows(done, DIFFERENCES, (row) => row.object);
  if (done.length === 0) cli.talk.say('there was nothing to do');
  return EXIT.done;
}

async function verify(cli: Cli, entity: string): Promise<number> {
  const found = await (await openCaptureAdmin(cli)).verify(entity);
  cli.out.rows(found, DIFFERENCES, (row) => row.object);
  cli.talk.say(
    found.length === 0 ? 'every change is captured' : 'changes may be missed; pawl capture apply repairs that',
  );
  return found.length === 0 ? EXIT.done : EXIT.failed;
}

const STATUS: readonly Field<LineStatus>[] = [
  { title: 'ENTITY', of: (row) => row.entity },
  { title: 'CONSUMER', of: (row) => row.name },
  { title: 'GUARANTEE', of: (row) => row.guarantee },
  { title: 'OUTSTANDING', of: (row) => row.outstanding, align: 'right' },
  {
    title: 'OLDEST',
    of: (row) => (row.oldestMs === null ? null : `${(row.oldestMs / 1000).toFixed(1)} s`),
    align: 'right',
  },
  { title: 'FAILING', of: (row) => row.failing, align: 'right' },
  {
    title: 'BACK-FILL',
    of: (row) => (row.sweepDone === null ? null : `${row.sweepDone} of ${row.sweepTotal}`),
    align: 'right',
  },
  { title: 'ERROR', of: (row) => row.error },
];

const CULPRITS: readonly Field<Culprit>[] = [
  { title: 'PID', of: (row) => row.pid, align: 'right' },
  { title: 'DATABASE', of: (row) => row.database },
  { title: 'USER', of: (row) => row.user },
  { title: 'APPLICATION', of: (row) => row.application },
  { title: 'STATE', of: (row) => row.state },
  { title: 'OPEN FOR', of: (row) => `${(row.ageMs / 1000).toFixed(1)} s`, align: 'right' },
  { title: 'HOLDS KEYS', of: (row) => (row.holdsKeys ? 'yes' : 'no') },
];

async function showStatus(cli: Cli, entity: string | undefined): Promise<number> {
  const admin = await openCaptureAdmin(cli);
  const lines = await admin.status(entity);
  const culprits = await admin.culprits();
  if (cli.out.format === 'json') {
    cli.out.one({ lines, culprits }, [], entity ?? '');
    return EXIT.done;
  }
  cli.out.rows(lines, STATUS, (row) => `${row.entity}/${row.name}`);
  if (lines.length === 0) cli.talk.say('no consumer is installed');
  if (culprits.length > 0 && cli.out.format === 'table') {
    cli.out.heading('transactions that have been open for long');
    cli.out.rows(culprits, CULPRITS, (row) => String(row.pid));
  }
  return EXIT.done;
}

async function tail(cli: Cli, entity: string): Promise<number> {
  const admin = await openCaptureAdmin(cli);
  for await (const change of admin.tail(entity, { signal: cli.signal })) {
    cli.out.text(cli.out.format === 'table' || cli.out.format === 'plain' ? printable(line(change)) : json(change));
  }
  return EXIT.done;
}

function line({ at, table, op, key, oldKey, after, before, actor, dbUser }: CapturedChange): string {
  const moved = oldKey === null ? '' : ` from ${oldKey}`;
  const who = actor === null ? dbUser : `${actor} (${dbUser})`;
  return `${at.toISOString()}  ${op} ${table} ${key ?? ''}${moved}  by ${who}  ${json(after ?? before ?? {})}`;
}

async function projectionsOf(cli: Cli, entity: string, into: string | undefined): Promise<readonly Projection[]> {
  const { projections } = await openCapture(cli, entity);
  const chosen = into === undefined ? projections : projections.filter(({ name }) => name === into);
  if (chosen.length > 0) return chosen;
  const names = projections.map(({ name }) => name).join(', ');
  throw new Failure(
    into === undefined
      ? `the capture "${entity}" has no projection`
      : `there is no projection "${into}"; there are ${names}`,
    {
      exit: EXIT.notFound,
      next: 'declare it in the config file with capture.project()',
    },
  );
}

async function replay(cli: Cli, entity: string, { into, again = false }: Flags): Promise<number> {
  for (const projection of await projectionsOf(cli, entity, into)) {
    if (cli.globals.dryRun) {
      cli.talk.say(`all entities would be projected into "${projection.name}"`);
      continue;
    }
    let bar: ReturnType<typeof startProgress> | undefined;
    try {
      const { done } = await projection.backfill({
        again,
        signal: cli.signal,
        onProgress: (progress) => {
          bar ??= startProgress(cli.talk, projection.name, progress.total);
          bar.at(progress.done);
        },
      });
      cli.out.one(
        { projection: projection.name, entities: done },
        [{ title: 'projected', of: (row) => row.entities }],
        projection.name,
      );
    } finally {
      bar?.stop();
    }
  }
  return EXIT.done;
}

async function reconcile(cli: Cli, entity: string, { into }: Flags): Promise<number> {
  let drifted = 0;
  for (const projection of await projectionsOf(cli, entity, into)) {
    const found = await projection.reconcile({ repair: !cli.globals.dryRun, signal: cli.signal });
    drifted += found.drifted;
    const fields: readonly Field<typeof found>[] = [
      { title: 'projection', of: () => projection.name },
      { title: 'checked', of: (row) => row.checked },
      { title: 'drifted', of: (row) => row.drifted },
      { title: 'keys', of: (row) => row.keys.join(', ') },
    ];
    cli.out.one({ projection: projection.name, ...found }, fields, projection.name);
  }
  return drifted === 0 ? EXIT.done : EXIT.failed;
}

async function detach(cli: Cli, entity: string): Promise<number> {
  const admin = await openCaptureAdmin(cli);
  const tables = (await admin.list()).find((one) => one.entity === entity)?.tables ?? [];
  if (cli.globals.dryRun && tables.length > 0) {
    cli.talk.say(`the triggers on ${tables.join(', ')} would be removed`);
    return EXIT.done;
  }
  await admin.detach(entity);
  cli.talk.say(`the capture "${entity}" is removed; tables that projections wrote stay`);
  cli.out.one({ entity, detached: true }, [{ title: 'detached', of: () => entity }], entity);
  return EXIT.done;
}
