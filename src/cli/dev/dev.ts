import { existsSync } from 'node:fs';
import { basename, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { TimedOut } from '../../base/errors.ts';
import { after, within } from '../../base/time/clock.ts';
import { formatDuration } from '../../base/time/duration.ts';
import { maskUrl } from '../../engine/database-url.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { DevControl, Program } from '../../http/index.ts';
import { EXIT, Failure } from '../output/failure.ts';
import { json } from '../output/output.ts';
import { isRecord } from '../setup/config.ts';
import { FrontDoor, openBrowser } from '../setup/front-door.ts';
import { durationArgument, wholeNumber } from '../setup/globals.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';
import { LockAccident } from './dev-lock.ts';
import { Stage } from './dev-stage.ts';

/** The context that `pawl dev` passes to the examples. They stop everything they started before `runDev` resolves. */
export interface DevContext {
  /** Connected to a migrated database. `pawl dev` stops it. */
  readonly engine: PostgresEngine;
  /** The URL of the same database, with its password: for child processes. */
  readonly url: string;
  /** Undefined with `--url`. */
  readonly embedded: { readonly dataDir: string; readonly temporary: boolean } | undefined;
  /** How long to feed requests; then finish, check and resolve. Undefined: until `signal` aborts. */
  readonly exitAfterMs: number | undefined;
  /** True: stdout must contain only one line of JSON, which `pawl dev` prints. */
  readonly json: boolean;
  /** Aborts on Ctrl-C and SIGTERM: stop feeding, stop what runs, check, and resolve. */
  readonly signal: AbortSignal;
  /** The port of the first front end. Undefined or 0: any free one. */
  readonly port: number | undefined;
  /** Makes random choices repeatable. */
  readonly seed: number | undefined;
  /** Writes a line for people to stderr. */
  log(line: string): void;
  /** Adds a button to the dashboard. */
  offer(control: DevControl): void;
  /** Names the queues, actors, captures and files that the dashboard can work with. It shows those of the database anyway. */
  show(part: Partial<Program>): void;
}

/**
 * The results of the examples. They may name any figure in addition to `ok`; these are the figures of `examples/spreadsheets`.
 */
export interface DevSummary {
  /** Nothing was lost, nothing was done twice, every file is right. */
  readonly ok: boolean;
  readonly enqueued?: number;
  readonly complete?: number;
  readonly error?: number;
  readonly lost?: number;
  readonly doubleRuns?: number;
  readonly workersKilled?: number;
  readonly filesChecked?: number;
  readonly [figure: string]: unknown;
}

interface DevFlags {
  readonly exitAfter?: number;
  readonly json?: boolean;
  readonly port?: number;
  readonly data?: string;
  readonly seed?: number;
  readonly bare?: boolean;
  readonly dashboardPort?: number;
  readonly open: boolean;
}

interface Database {
  readonly url: string;
  readonly embedded: { readonly dataDir: string; readonly temporary: boolean } | undefined;
}

/** Where the build puts the compiled examples: two folders up from here, in a checkout and in the package. */
const EXAMPLES = fileURLToPath(new URL('../../../dist-examples/dev.js', import.meta.url));
/** How long an example may take, after its time is over, to finish and check its work. */
const GRACE_MS = 120_000;

/** `pawl dev`: runs a database and the examples on it, without any preparation. */
export function addDev(program: Command): void {
  const command = program
    .command('dev')
    .description('try it now: start a database of our own and run the examples on it')
    .option(
      '--exit-after <duration>',
      'end after this time, e.g. 20s, and exit 1 unless all was well',
      durationArgument,
    )
    .option('--json', 'end with one line of JSON on stdout')
    .option('--port <port>', 'port of the front end (default: any free one)', wholeNumber(0, 65_535))
    .option('--dashboard-port <port>', 'port of the dashboard (default: any free one)', wholeNumber(0, 65_535))
    .option('--data <dir>', 'keep the data in this folder (default: temporary)')
    .option('--seed <n>', 'make random choices repeatable', wholeNumber(0, 2 ** 31 - 1))
    .option('--no-open', 'open no browser, even in a terminal')
    .option('--bare', 'only the database, without the examples');
  examples(command, ['pawl dev', 'pawl dev --exit-after 20s --json']);
  command.action((flags: DevFlags, self: Command) =>
    run(self, (cli) => dev(cli, flags), { writes: true, endsBySignal: true }),
  );
}

async function dev(cli: Cli, flags: DevFlags): Promise<number> {
  if (cli.globals.schema !== undefined) {
    throw new Failure('pawl dev has its tables in the schema pawl, as its examples have', {
      exit: EXIT.usage,
      next: 'leave --schema out',
    });
  }
  if (cli.globals.url !== undefined && flags.data !== undefined) {
    throw new Failure('--data is the folder of a database of our own, --url names another one', {
      exit: EXIT.usage,
      next: 'leave one of them out',
    });
  }
  if (flags.bare !== true && !existsSync(EXAMPLES)) {
    throw new Failure(`the examples are not here: ${EXAMPLES} does not exist`, {
      next: 'npm run build, in a checkout; or pawl dev --bare for the database alone',
    });
  }
  const database = await openDatabase(cli, flags);
  if (database === undefined) return EXIT.done;
  const engine = await cli.open(
    { ...database, directUrl: undefined, prepare: undefined, schema: undefined, origin: 'pawl dev' },
    { max: 20 },
  );
  await engine.migrate();
  const stage = new Stage();
  const dashboard = await openDashboard(cli, engine, stage, flags.dashboardPort);
  welcome(cli, database, dashboard);
  if (flags.open && flags.exitAfter === undefined) await openBrowser(cli, dashboard);
  const given = { engine, stage, ...database };
  const summary = flags.bare === true ? await idle(cli, flags) : await runExamples(cli, flags, given);
  finish(cli, flags, summary);
  if (!summary.ok) return EXIT.failed;
  // Without --exit-after, Ctrl-C is the usual end; with it, Ctrl-C has cut the run short.
  if (cli.signal.aborted && flags.exitAfter !== undefined) throw cli.signal.reason;
  return EXIT.done;
}

/** Undefined on a dry run. Does not use a URL of the environment: it may be the URL of a database that matters. */
async function openDatabase(cli: Cli, { data }: DevFlags): Promise<Database | undefined> {
  const { globals, talk } = cli;
  if (globals.dryRun) {
    talk.say(`would run the examples on ${globals.url === undefined ? 'a database of its own' : maskUrl(globals.url)}`);
    return undefined;
  }
  if (globals.url !== undefined) return { url: globals.url, embedded: undefined };
  const set = ['PAWL_URL', 'DATABASE_URL'].find((name) => process.env[name]);
  if (set !== undefined) talk.say(`${set} is left alone; to run the examples there, add --url "$${set}"`);
  const { startEmbedded } = await import('../../engine/postgres/embedded/index.ts');
  const server = await startEmbedded(data === undefined ? {} : { data });
  cli.atEnd(() => server.stop());
  return { url: server.url, embedded: { dataDir: server.dataDir, temporary: server.temporary } };
}

/** @returns the address of the dashboard, with the token that lets its reader in */
async function openDashboard(
  cli: Cli,
  engine: PostgresEngine,
  stage: Stage,
  port: number | undefined,
): Promise<string> {
  const { createHttp, serve } = await import('../../http/index.ts');
  const accident = new LockAccident(engine);
  stage.offer(accident);
  const door = new FrontDoor();
  const auth = { tokens: [door.token] };
  const served = await serve(createHttp(engine, { title: 'pawl dev', dev: () => stage, auth }), { port });
  cli.atEnd(async () => {
    await served.stop();
    await accident.stop();
  });
  return door.urlOf(served.url);
}

function welcome({ talk }: Cli, { url, embedded }: Database, dashboard: string): void {
  const pawl = commandName();
  const line = (title: string, text: string): void => talk.say(`  ${talk.paint('dim', title.padEnd(9))} ${text}`);
  talk.say(talk.paint('bold', 'pawl dev'));
  line('dashboard', talk.paint('bold', dashboard));
  // The password of our own database was made for this folder. We must not show the password of another database.
  line('database', embedded === undefined ? maskUrl(url) : url);
  if (embedded?.temporary === true)
    line('data', `${embedded.dataDir} (temporary: gone when this ends; keep it with --data DIR)`);
  else if (embedded !== undefined) line('data', `${embedded.dataDir} (kept)`);
  line(
    'try next',
    `in another terminal, ${embedded === undefined ? 'with the same --url' : `export PAWL_URL=${url}`}, then`,
  );
  for (const next of ['queue list', 'job list --limit 5', 'doctor']) line('', `${pawl} ${next}`);
  line('stop', 'Ctrl-C');
}

/** The command that the user has to type: the package's command, or the built file of a checkout. */
function commandName(): string {
  const [, script = ''] = process.argv;
  return basename(script) === 'pawl' ? 'npx pawl' : `node ${relative(process.cwd(), script)}`;
}

async function runExamples(
  cli: Cli,
  { exitAfter, json: asJson, port, seed }: DevFlags,
  { stage, ...given }: Database & { readonly engine: PostgresEngine; readonly stage: Stage },
): Promise<DevSummary> {
  const module: unknown = await import(EXAMPLES);
  if (!isExamples(module)) throw new Failure(`${EXAMPLES} exports no function runDev`, { next: 'npm run build' });
  const context: DevContext = {
    ...given,
    exitAfterMs: exitAfter,
    json: asJson === true || cli.out.format === 'json' || cli.out.format === 'jsonl',
    signal: cli.signal,
    port,
    seed,
    log: (line) => cli.talk.say(line),
    offer: (control) => stage.offer(control),
    show: (part) => stage.show(part),
  };
  const summary = await inTime(module.runDev(context), exitAfter);
  if (isRecord(summary) && typeof summary['ok'] === 'boolean') return { ...summary, ok: summary['ok'] };
  throw new Failure('the examples ended without a summary');
}

function isExamples(module: unknown): module is { runDev: (context: DevContext) => Promise<unknown> } {
  return isRecord(module) && typeof module['runDev'] === 'function';
}

/** A smoke test that hangs must fail, too. */
async function inTime<T>(work: Promise<T>, exitAfterMs: number | undefined): Promise<T> {
  if (exitAfterMs === undefined) return work;
  const limit = exitAfterMs + GRACE_MS;
  if (await within(limit, work)) return work;
  throw new TimedOut(`the examples were not done within ${formatDuration(limit)}`);
}

function idle({ signal }: Cli, { exitAfter }: DevFlags): Promise<DevSummary> {
  return new Promise((resolve) => {
    const done = (): void => {
      cancel();
      resolve({ ok: true });
    };
    // A timer keeps the process alive while it waits for a signal, even without a time limit.
    const cancel = after(exitAfter ?? Infinity, done);
    signal.addEventListener('abort', done, { once: true });
    if (signal.aborted) done();
  });
}

function finish({ out, talk }: Cli, { json: asJson }: DevFlags, summary: DevSummary): void {
  const { ok } = summary;
  if (asJson === true) out.text(json(summary));
  else
    out.one(
      summary,
      Object.keys(summary).map((title) => ({ title, of: (row) => row[title] })),
      String(ok),
    );
  if (!ok) talk.fail('the run did not end well: see the figures', 'run it again with the same --seed, and -v');
}
