import type { Command } from 'commander';
import { maskUrl } from '../../engine/database-url.ts';
import { packageVersion } from '../../engine/version.ts';
import { EXIT, exitCodeOf, isRightMissing, messageOf, nextStepOf } from '../output/failure.ts';
import { addDynamoFlags, type DynamoFlags, flagsOf, openTable } from '../setup/dynamo-table.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';
import { needTarget, type Target } from '../setup/target.ts';
import { type Finding, fail, ok } from './finding.ts';

/** `pawl doctor`: what is wrong here, and what to do about it. */
export function addDoctor(program: Command): void {
  const command = program
    .command('doctor')
    .description('check settings, database, schema and queues; exit 1 when something is wrong');
  examples(command, [
    'pawl doctor',
    'pawl doctor -o json --url postgres://localhost/app',
    'pawl doctor --dynamodb pawl',
  ]);
  addDynamoFlags(command, 'look at this table');
  command.action((flags: DynamoFlags, self: Command) => run(self, (cli) => diagnose(cli, flags)));
}

async function diagnose(cli: Cli, flags: DynamoFlags): Promise<number> {
  if (cli.table !== undefined) return diagnoseTable(cli, cli.table, flags);
  const target = await needTarget(cli.globals);
  return report(cli, settings(target, cli), async () => {
    const engine = await cli.open(target);
    const { examine } = await import('./checks.ts');
    return examine(engine);
  });
}

async function diagnoseTable(cli: Cli, table: string, flags: DynamoFlags): Promise<number> {
  const findings = [ok('pawl', ownVersion()), ok('table', [table, ...flagsOf(flags).slice(1)].join(' '))];
  return report(cli, findings, async () => {
    const engine = await openTable(cli, table, flags);
    const { examineTable } = await import('./table-checks.ts');
    return examineTable(engine, flags);
  });
}

/** Prints the findings, and what is wrong. */
async function report(cli: Cli, known: readonly Finding[], examine: () => Promise<Finding[]>): Promise<number> {
  const findings = [...known];
  let code: number = EXIT.done;
  try {
    findings.push(...(await examine()));
  } catch (error) {
    // The error is then the only finding, and the exit code tells a script that nothing else was checked.
    if (cli.signal.aborted) throw error;
    const known = exitCodeOf(error);
    const next = known === EXIT.unreachable ? 'start the database, or correct the URL' : (nextStepOf(error) ?? null);
    const check = isRightMissing(error) ? 'rights' : known === EXIT.unreachable ? 'connection' : 'database';
    findings.push(fail(check, messageOf(error), next));
    code = known;
  }
  print(cli, findings);
  const problems = findings.filter(({ verdict }) => verdict === 'fail');
  if (code === EXIT.done && problems.length > 0) code = EXIT.failed;
  advise(cli, findings);
  return code;
}

function settings({ url, origin, directUrl, prepare, schema }: Target, { globals }: Cli): Finding[] {
  const findings = [ok('pawl', ownVersion()), ok('url', `${maskUrl(url)} from ${origin}`)];
  if (directUrl !== undefined) findings.push(ok('directUrl', maskUrl(directUrl)));
  if (prepare !== undefined) findings.push(ok('prepare', String(prepare)));
  if (schema !== undefined) findings.push(ok('schema name', schema));
  if (globals.config !== undefined) findings.push(ok('config', `${globals.config} from --config`));
  const unused = ['PAWL_URL', 'DATABASE_URL'].filter((name) => process.env[name] && name !== origin);
  if (unused.length > 0) findings.push(ok('not used', `${unused.join(', ')}: ${origin} comes first`));
  return findings;
}

function ownVersion(): string {
  return `${packageVersion()} on Node ${process.versions.node}`;
}

function print({ out, talk }: Cli, findings: readonly Finding[]): void {
  const marks = { warn: 'yellow', fail: 'red' } as const;
  out.rows(
    findings,
    [
      { title: 'CHECK', of: (finding) => finding.check },
      { title: 'VERDICT', of: (finding) => finding.verdict },
      { title: 'DETAIL', of: (finding) => finding.detail, wraps: true },
    ],
    (finding) => `${finding.check} ${finding.verdict}`,
  );
  for (const { check, verdict, fix } of findings) {
    if (verdict === 'ok' || fix === null) continue;
    talk.say(`${talk.paint(marks[verdict], `${verdict}:`)} ${check}; ${talk.paint('bold', 'next:')} ${fix}`);
  }
}

function advise({ talk }: Cli, findings: readonly Finding[]): void {
  if (findings.every(({ verdict }) => verdict === 'ok')) talk.say(talk.paint('green', 'nothing is wrong'));
}
