import { text } from 'node:stream/consumers';
import type { Command } from 'commander';
import { aborted } from '../../base/time/clock.ts';
import type { DynamoEngine } from '../../engine/dynamodb/index.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { HttpOptions } from '../../http/index.ts';
import { EXIT, Failure } from '../output/failure.ts';
import { type Config, isRecord, loadConfig } from '../setup/config.ts';
import { type DynamoFlags, migrateCommand, openTable } from '../setup/dynamo-table.ts';
import { FrontDoor, openBrowser } from '../setup/front-door.ts';
import { wholeNumber } from '../setup/globals.ts';
import { examples } from '../setup/help.ts';
import { openContent } from '../setup/open-files.ts';
import { programOf } from '../setup/program.ts';
import { type Cli, run } from '../setup/run.ts';
import { needTarget } from '../setup/target.ts';

interface Flags extends DynamoFlags {
  readonly port: number;
  readonly host: string;
  readonly basePath?: string;
  readonly title?: string;
  readonly token?: string;
  readonly store?: string;
  readonly open: boolean;
}

/** `pawl dashboard [hash]`. */
export function addDashboard(program: Command): void {
  const command = program
    .command('dashboard')
    .description('serve the dashboard and the HTTP API until SIGTERM or Ctrl-C')
    .option('--port <port>', 'the port to listen on', wholeNumber(0, 65_535), 7295)
    .option('--host <host>', 'the address to listen on; one that other machines reach needs auth', '127.0.0.1')
    .option('--base-path <path>', 'the path to serve it under, such as /pawl')
    .option('--title <text>', 'shown on every page, such as "production"')
    .option('--token <token>', 'an administrator’s token; else PAWL_TOKEN, or http.auth in the config file')
    .option('--no-open', 'open no browser, even in a terminal')
    .option('--store <place>', 'the bytes of files: a folder, or s3://bucket/prefix; else PAWL_FILES')
    .option('--endpoint <url>', 'the URL of a store that speaks S3 and is not Amazon’s, or of DynamoDB Local')
    .option('--dynamodb [table]', 'the queues in this table instead; "pawl" unless named')
    .option('--region <region>', 'the region of the table; else AWS_REGION');
  examples(command, [
    'pawl dashboard --url postgres://localhost/app',
    'pawl dashboard --read-only --title production',
    'pawl dashboard --dynamodb pawl',
  ]);
  command.action((flags: Flags, self: Command) => run(self, (cli) => serveIt(cli, flags), { endsBySignal: true }));
  const hash = command.command('hash').description('print the hash of a password, which is read from stdin');
  examples(hash, ['pawl dashboard hash < password.txt', 'pass show pawl | pawl dashboard hash']);
  hash.action((_options: object, self: Command) => run(self, hashIt));
}

async function serveIt(cli: Cli, flags: Flags): Promise<number> {
  const { globals, talk } = cli;
  const config = await loadConfig(globals.config);
  const given = optionsOf(flags, config?.http, globals.readOnly);
  refuseOpenDoor(flags.host, given);
  const door = hasWayIn(given) ? undefined : new FrontDoor();
  const options = door === undefined ? given : { ...given, auth: { ...given.auth, tokens: [door.token] } };
  if (globals.dryRun) {
    if (cli.table === undefined) await needTarget(globals, config);
    talk.say(`would serve the dashboard on ${flags.host}, port ${flags.port}`);
    return EXIT.done;
  }
  const { createHttp, serve } = await import('../../http/index.ts');
  const { engine, what, ...parts } = await open(cli, flags, config, options);
  const { port, host } = flags;
  const served = await serve(createHttp(engine, { ...parts, ...options }), { port, host }).catch(inUse);
  cli.atEnd(() => served.stop());
  const url = door?.urlOf(served.url) ?? served.url;
  talk.say(`dashboard of ${what}: ${url}`);
  if (flags.open) await openBrowser(cli, url);
  await aborted(cli.signal).catch(() => undefined);
  return EXIT.done;
}

interface DashboardParts extends HttpOptions {
  readonly engine: PostgresEngine | DynamoEngine;
  /** The database or the table, in words. */
  readonly what: string;
}

/** Opens the database or the table. If it cannot be reached, the command says so now, and not on every page. */
async function open(cli: Cli, flags: Flags, config: Config | undefined, options: HttpOptions): Promise<DashboardParts> {
  if (cli.table !== undefined) {
    const table = await openTable(cli, cli.table, flags);
    if (await table.isMigrated()) return { engine: table, what: `the table "${cli.table}" of DynamoDB` };
    throw new Failure(`there is no table "${cli.table}"`, { exit: EXIT.failed, next: migrateCommand(flags) });
  }
  const target = await needTarget(cli.globals, config);
  const engine = await cli.open(target, { applicationName: 'pawl dashboard', max: 8 });
  const { serverVersion } = await engine.describe();
  const files = await filesOf(cli, flags, engine, options);
  const program = await programOf(cli, config, engine);
  return { engine, what: `Postgres ${serverVersion}`, ...program, ...files };
}

function optionsOf({ basePath, title, token }: Flags, config: unknown, readOnly: boolean): HttpOptions {
  if (config !== undefined && !isRecord(config)) {
    throw new Failure('"http" in the config file must be an object', { exit: EXIT.usage, next: 'see docs/http.md' });
  }
  const given: HttpOptions = config ?? {};
  const secret = token ?? process.env['PAWL_TOKEN'];
  const tokens = [
    ...(given.auth?.tokens ?? []),
    ...(secret ? [{ name: 'cli', token: secret, role: 'admin' } as const] : []),
  ];
  return {
    ...given,
    ...(basePath === undefined ? {} : { basePath }),
    ...(title === undefined ? {} : { title }),
    ...(readOnly ? { readOnly } : {}),
    ...(tokens.length > 0 ? { auth: { ...given.auth, tokens } } : {}),
  };
}

/** The files outside of namespaces; the config file gives those of namespaces. */
async function filesOf(
  cli: Cli,
  flags: Flags,
  engine: PostgresEngine,
  { files: given }: HttpOptions,
): Promise<Pick<HttpOptions, 'files'>> {
  const place = flags.store ?? process.env['PAWL_FILES'] ?? '';
  if (given !== undefined || place === '') return {};
  const { createFiles } = await import('../../files/index.ts');
  const content = await openContent(place, flags.endpoint ?? process.env['PAWL_FILES_ENDPOINT']);
  const files = createFiles(engine, { content });
  cli.atEnd(() => files.stop());
  return { files };
}

/**
 * The output is for the person at this terminal. If other machines can reach the address, every listener on the network can
 * read a token in it.
 */
function refuseOpenDoor(host: string, options: HttpOptions): void {
  const isLocal = /^(localhost|127\.\d+\.\d+\.\d+|::1)$/.test(host);
  if (isLocal || hasWayIn(options)) return;
  throw new Failure(`other machines can reach ${host}, and no authentication is set up`, {
    exit: EXIT.usage,
    next: 'add --token, or http: { auth: … } to the config file',
  });
}

function hasWayIn({ auth }: HttpOptions): boolean {
  const listed = [auth?.tokens, auth?.users].some((list) => (list?.length ?? 0) > 0);
  return listed || [auth?.jwt, auth?.authorize, auth?.dangerouslyTrustLoopback].some((way) => way !== undefined);
}

function inUse(error: NodeJS.ErrnoException): never {
  if (error.code !== 'EADDRINUSE' && error.code !== 'EACCES' && error.code !== 'EADDRNOTAVAIL') throw error;
  throw new Failure(`cannot listen there: ${error.message}`, {
    exit: EXIT.conflict,
    next: 'choose another --port, or --host',
  });
}

async function hashIt(cli: Cli): Promise<number> {
  if (process.stdin.isTTY === true) cli.talk.say('the password, then Enter and Ctrl-D:');
  const { hashPassword } = await import('../../http/index.ts');
  cli.out.text(await hashPassword((await text(process.stdin)).replace(/\r?\n$/, '')));
  return EXIT.done;
}
