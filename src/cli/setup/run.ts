import type { Command } from 'commander';
import { PawlError, TimedOut } from '../../base/errors.ts';
import { stderrLogger } from '../../base/logger.ts';
import { after, sleep } from '../../base/time/clock.ts';
import { formatDuration } from '../../base/time/duration.ts';
import type { DynamoEngine } from '../../engine/dynamodb/index.ts';
import type { PostgresEngine, PostgresOptions } from '../../engine/postgres/index.ts';
import type { AnyQueueAdmin } from '../../queue/index.ts';
import { EXIT, exitCodeOf, Failure, Interruption, messageOf } from '../output/failure.ts';
import { Output } from '../output/output.ts';
import { Talk } from '../output/reporter.ts';
import { type DynamoFlags, openTable, tableOf } from './dynamo-table.ts';
import { DEFAULTS, type Globals } from './globals.ts';
import { needTarget, type Target } from './target.ts';
import { explainUnknownQueue } from './unknown-queue.ts';

/** What a command works with. */
export interface Cli {
  readonly globals: Globals;
  readonly out: Output;
  readonly talk: Talk;
  /** Aborts on Ctrl-C, SIGTERM and after `--timeout`; its reason is the error to end with. */
  readonly signal: AbortSignal;
  /** The database of the command line, opened now and closed when the command ends. @throws Failure if none was named */
  engine(options?: PostgresOptions): Promise<PostgresEngine>;
  /** Opens a database that was found already. */
  open(target: Target, options?: PostgresOptions): Promise<PostgresEngine>;
  /** The table of DynamoDB that the command line names in place of a database. */
  readonly table: string | undefined;
  /** The database of the command line, or its table of DynamoDB. */
  ground(): Promise<PostgresEngine | DynamoEngine>;
  /** The queues of the database of the command line, or of its table of DynamoDB. */
  admin(): Promise<AnyQueueAdmin>;
  /** Calls `close` when the command ends; the last one that was added is called first. */
  atEnd(close: () => Promise<void>): void;
  /** From now on, this function says what to do next about an error of ours. */
  advise(next: (error: unknown) => string | undefined): void;
}

export interface RunOptions {
  /** The command changes data, so --read-only refuses it. */
  readonly writes?: boolean;
  /** The command runs until a signal ends it: it watches `signal` itself and ends in good order. */
  readonly endsBySignal?: boolean;
  /** The queue that the command line names. If it does not exist, the refusal names the existing queues. */
  readonly queue?: string | undefined;
}

/** A busy server answers within this time; a server that does not is down. */
const CONNECT_MS = 10_000;
/** The longest wait for work that is under way when a command is broken off. */
const STOP_MS = 500;

/** Runs a command's work: reads its options, limits its time, and closes everything in the end. */
export async function run(
  command: Command,
  work: (cli: Cli) => Promise<number | void>,
  { writes = false, endsBySignal = false, queue }: RunOptions = {},
): Promise<void> {
  const globals: Globals = { ...DEFAULTS, ...command.optsWithGlobals() };
  const dynamo: DynamoFlags = namesTable(command) ? command.opts() : {};
  if (writes && globals.readOnly && !globals.dryRun) {
    throw new Failure(`${command.name()} changes something, which --read-only refuses`, {
      exit: EXIT.usage,
      next: 'leave --read-only out, or add --dry-run',
    });
  }
  const closers: (() => Promise<void>)[] = [];
  let advice: ((error: unknown) => string | undefined) | undefined;
  const limit = watch(globals, endsBySignal);
  // The code that speaks to the database is loaded when it is needed: it is half of the time of --help or of a typing error.
  const open = async (target: Target, options?: PostgresOptions): Promise<PostgresEngine> => {
    const { postgres } = await import('../../engine/postgres/index.ts');
    const engine = postgres(target.url, engineOptions(globals, target, options));
    closers.push(() => engine.stop());
    return engine;
  };
  const openOwn = async (options?: PostgresOptions): Promise<PostgresEngine> =>
    open(await needTarget(globals), options);
  let own: Promise<PostgresEngine> | undefined;
  let named: Promise<DynamoEngine> | undefined;
  const cli: Cli = {
    globals,
    out: new Output({ format: globals.output, quiet: globals.quiet, time: globals.time, colour: globals.color }),
    talk: new Talk(globals.color, globals.quiet),
    signal: limit.signal,
    engine: (options) => (options === undefined ? (own ??= openOwn()) : openOwn(options)),
    open,
    table: tableOf(dynamo, { globals }),
    ground: () => {
      const { table } = cli;
      if (table === undefined) return cli.engine();
      named ??= openTable(cli, table, dynamo);
      return named;
    },
    admin: async () => (await import('../../queue/index.ts')).createQueueAdmin(await cli.ground()),
    atEnd: (close) => void closers.push(close),
    advise: (next) => {
      advice = next;
    },
  };
  try {
    const code = await (endsBySignal ? work(cli) : Promise.race([work(cli), limit.ended]));
    process.exitCode = code ?? EXIT.done;
  } catch (thrown) {
    const error = queue === undefined ? thrown : await explainUnknownQueue(thrown, queue, command, () => cli.admin());
    if (advice === undefined || !(error instanceof PawlError)) throw error;
    const next = advice(error);
    throw new Failure(messageOf(error), { exit: exitCodeOf(error), ...(next !== undefined && { next }) });
  } finally {
    limit.stop();
    await closeAll(closers, limit.signal.aborted && !endsBySignal);
  }
}

/** If a command also takes a store of files and names no table, `--endpoint` is the address of that store. */
function namesTable(command: Command): boolean {
  const names = command.options.map((option) => option.attributeName());
  return names.includes('dynamodb') && (!names.includes('store') || command.opts()['dynamodb'] !== undefined);
}

/** Closes in reverse order. A command that was broken off ends now: a connection that hangs is closed with the process. */
async function closeAll(closers: (() => Promise<void>)[], hurry: boolean): Promise<void> {
  const all = async (): Promise<void> => {
    for (const close of closers.reverse()) await close();
  };
  await (hurry ? Promise.race([all(), sleep(2 * STOP_MS)]) : all());
}

interface Limit {
  readonly signal: AbortSignal;
  /** Rejects when the signal aborts. */
  readonly ended: Promise<never>;
  stop(): void;
}

function watch({ timeout }: Globals, endsBySignal: boolean): Limit {
  const controller = new AbortController();
  const { signal } = controller;
  const ended = new Promise<never>((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
  ended.catch(() => {});
  const onSignal = (name: NodeJS.Signals): void => {
    // The first signal asks the command to end; the second one does not wait any longer.
    if (signal.aborted) process.exit(name === 'SIGINT' ? EXIT.interrupted : EXIT.terminated);
    controller.abort(new Interruption(name));
  };
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  const late = (): void => controller.abort(new TimedOut(`not done within ${formatDuration(timeout ?? 0)}`));
  const cancel = timeout === undefined || endsBySignal ? undefined : after(timeout, late);
  return {
    signal,
    ended,
    stop: () => {
      cancel?.();
      process.off('SIGINT', onSignal);
      process.off('SIGTERM', onSignal);
    },
  };
}

function engineOptions(
  globals: Globals,
  { directUrl, prepare, schema }: Target,
  options: PostgresOptions = {},
): PostgresOptions {
  return {
    applicationName: 'pawl cli',
    max: 4,
    connectTimeoutMs: CONNECT_MS,
    stopTimeoutMs: STOP_MS,
    logger: stderrLogger({ level: globals.verbose ? 'debug' : 'warn' }),
    ...(directUrl === undefined ? {} : { directUrl }),
    ...(prepare === undefined ? {} : { prepare }),
    ...(schema === undefined ? {} : { schema }),
    ...options,
  };
}
