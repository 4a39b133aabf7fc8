import type { Command } from 'commander';
import type { Actors, Dispatcher, RunOptions } from '../../actor/index.ts';
import { type Logger, stderrLogger } from '../../base/logger.ts';
import { aborted } from '../../base/time/clock.ts';
import type { Capture, RunOptions as ProjectionOptions } from '../../capture/index.ts';
import type { DynamoEngine } from '../../engine/dynamodb/index.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { Queue, Worker, WorkOptions } from '../../queue/index.ts';
import { EXIT, Failure } from '../output/failure.ts';
import { isActors } from '../setup/actor-config.ts';
import { isCaptures } from '../setup/capture-config.ts';
import { type Config, isEngine, isRecord, loadConfig } from '../setup/config.ts';
import { addDynamoFlags, type DynamoFlags, openTable } from '../setup/dynamo-table.ts';
import { durationOption, wholeNumber } from '../setup/globals.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';
import { needTarget } from '../setup/target.ts';
import { behindNpm } from './behind-npm.ts';
import { startCapture } from './capture-worker.ts';
import { type HealthAddress, healthAddress, serveHealth } from './health.ts';
import { addRelease } from './release.ts';
import { kindsArgument, priorityArgument, type TakenFlags, withTaken } from './taken.ts';

/** One worker of a config file's `workers`. */
export interface WorkerEntry {
  readonly queue: Queue;
  readonly handlers: Parameters<Queue['work']>[0];
  readonly options?: WorkOptions;
}

interface WorkerFlags extends DynamoFlags, TakenFlags {
  readonly stopTimeout: number;
  readonly connections: number;
  readonly health?: HealthAddress;
  readonly once?: true;
}

/** `pawl worker --config FILE`: runs workers until it is told to end, or with `--once` until nothing is ready. */
export function addWorker(program: Command): void {
  const command = program
    .command('worker')
    .description('run the workers of a config file until SIGTERM or Ctrl-C; a second signal ends it at once')
    .addOption(durationOption('--stop-timeout <duration>', 'how long running jobs may take to end', '30s'))
    .option('--connections <n>', 'connections to the database', wholeNumber(2, 10_000), 20)
    .option('--kinds <names>', 'take jobs of these kinds only, e.g. send,bill', kindsArgument)
    .option('--priority <range>', 'take jobs of these priorities only, e.g. -5..-1 or ..-1', priorityArgument)
    .option('--once', 'run the jobs that are ready now, and end')
    .option('--health <port>', 'answer /healthz and /readyz on this port, or address:port', healthAddress);
  examples(command, [
    'pawl worker --config workers.mjs',
    'pawl worker --config workers.mjs --health 8080',
    'pawl worker --config workers.mjs --once',
    'pawl worker --config workers.mjs --dynamodb pawl',
    'pawl worker --config workers.mjs --kinds bill --priority ..-1',
  ]);
  addDynamoFlags(command, 'the queues are in this table');
  command.action((flags: WorkerFlags, self: Command) =>
    run(self, (cli) => work(cli, flags), { writes: true, endsBySignal: true }),
  );
  addRelease(command);
}

async function work(cli: Cli, flags: WorkerFlags): Promise<number> {
  const { quiet, verbose, dryRun } = cli.globals;
  const logger = stderrLogger({ level: quiet ? 'warn' : verbose ? 'debug' : 'info' });
  const { entries, actors, dispatcher, captures, projections } = await readEntries(cli, flags, logger);
  if (dryRun) {
    for (const { entity } of captures) cli.talk.say(`would start the consumers of capture "${entity}"`);
    for (const { queue } of entries) cli.talk.say(`would start a worker of queue "${queue.name}"`);
    if (actors !== undefined) cli.talk.say('would start a dispatcher of actors');
    return EXIT.done;
  }
  if (flags.once === true) {
    if (actors !== undefined || captures.length > 0) throw onceIsForQueues();
    return runOnce(cli, entries, flags.stopTimeout, logger);
  }
  const warning = process.stdin.isTTY ? undefined : behindNpm(process.env); // at a terminal Ctrl-C reaches it anyway
  if (warning !== undefined) logger.warn({}, warning);
  const workers: Running[] = entries.map((entry) => [`queue ${entry.queue.name}`, start(entry, logger)]);
  if (actors !== undefined) workers.push(['actors', startActors(actors, dispatcher, logger)]);
  for (const capture of captures) {
    workers.push([`capture ${capture.entity}`, startCapture(capture, projections, logger)]);
  }
  const stopAll = async (): Promise<void> => {
    await Promise.all(workers.map(([, worker]) => worker.stop({ timeout: flags.stopTimeout })));
  };
  const told = aborted(cli.signal).catch(() => undefined);
  try {
    if (flags.health !== undefined) await startHealth(cli, flags.health, workers, logger);
    await Promise.race([told, Promise.all(workers.map(([, worker]) => worker.started)).then(() => told)]);
    logger.info(
      {},
      'stopping: running jobs may end, other jobs are given back; a second signal ends the process at once',
    );
  } finally {
    await stopAll();
  }
  logger.info({}, 'stopped');
  return EXIT.done;
}

/** Runs the ready jobs. A signal stops the workers as it does without `--once`, and so does the failure of one: running jobs may end. */
async function runOnce(
  cli: Cli,
  entries: readonly WorkerEntry[],
  stopTimeout: number,
  logger: Logger,
): Promise<number> {
  const workers: Worker[] = [];
  const stopAll = async (): Promise<void> => {
    await Promise.all(workers.map((worker) => worker.stop({ timeout: stopTimeout })));
  };
  const once = async (entry: WorkerEntry) => {
    const worker = start(entry, logger);
    workers.push(worker);
    return { queue: entry.queue.name, ...(await worker.once()) };
  };
  const all = Promise.all(entries.map(once));
  cli.signal.addEventListener('abort', () => void stopAll(), { once: true });
  if (cli.signal.aborted) void stopAll();
  const results = await all.catch(async (error: unknown) => {
    await stopAll();
    throw error;
  });
  cli.out.rows(
    results,
    [
      { title: 'QUEUE', of: (row) => row.queue },
      { title: 'COMPLETE', of: (row) => row.complete, align: 'right' },
      { title: 'RETRIED', of: (row) => row.retried, align: 'right' },
      { title: 'ERROR', of: (row) => row.error, align: 'right' },
      { title: 'CANCELLED', of: (row) => row.cancelled, align: 'right' },
    ],
    (row) => row.queue,
  );
  return EXIT.done;
}

function onceIsForQueues(): Failure {
  return new Failure('--once runs queues only, and this config file has actors or captures, which never end', {
    exit: EXIT.usage,
    next: 'give --once a config file with "workers" alone',
  });
}

/** A worker that runs until it is stopped, with its name. */
type Running = readonly [name: string, worker: Pick<Worker, 'started' | 'stop' | 'problem'>];

/** The server answers until the last worker has stopped. */
async function startHealth(
  cli: Cli,
  address: HealthAddress,
  workers: readonly Running[],
  logger: Logger,
): Promise<void> {
  const checked = workers.map(([name, worker]) => ({ name, problem: () => worker.problem }));
  const server = await serveHealth(address, checked);
  cli.atEnd(async () => {
    server.closeAllConnections();
    await server[Symbol.asyncDispose]();
  });
  logger.info({ address: server.address() }, 'health: it answers /healthz and /readyz');
}

function start({ queue, handlers, options = {} }: WorkerEntry, logger: Logger): Worker {
  const worker = queue.work(handlers, options);
  const { name } = queue;
  const { events } = worker;
  // The worker itself logs errors of the database.
  events.on('claimed', ({ jobs }) => logger.debug({ queue: name, jobs }, 'claimed'));
  events.on('failed', ({ unit, job, to, error }) => {
    const fields = { queue: name, kind: unit.kind, job: job.id, attempt: job.attempt, to, error };
    if (to === 'error') logger.error(fields, 'job failed for good');
    else logger.warn(fields, 'job failed');
  });
  events.on('stale', ({ claims }) =>
    logger.warn({ queue: name, claims }, 'outcomes came too late and were not written'),
  );
  events.on('lost', ({ reason }) => logger.error({ queue: name, reason: reason.message }, 'the lease was lost'));
  return worker;
}

function startActors(actors: Actors, options: RunOptions, logger: Logger): Dispatcher {
  const dispatcher = actors.run(options);
  const { events } = dispatcher;
  events.on('turn', (turn) => logger.debug(turn, 'turn'));
  events.on('failed', ({ error, ...turn }) => logger.warn({ ...turn, err: error }, 'turn failed'));
  events.on('stale', (stale) => logger.warn(stale, 'turns came too late and changed nothing'));
  events.on('unknown', (actor) => logger.error(actor, 'an actor is in a state that this program does not know'));
  events.on('lost', ({ reason }) => logger.error({ reason: reason.message }, 'the lease was lost'));
  return dispatcher;
}

interface Entries {
  readonly entries: readonly WorkerEntry[];
  readonly actors: Actors | undefined;
  readonly dispatcher: RunOptions;
  readonly captures: readonly Capture[];
  readonly projections: ProjectionOptions;
}

async function readEntries(cli: Cli, flags: WorkerFlags, logger: Logger): Promise<Entries> {
  const config = await loadConfig(cli.globals.config);
  if (config === undefined) {
    throw new Failure('a worker needs a config file that names the workers to run', {
      exit: EXIT.usage,
      next: 'add --config FILE; docs/cli.md shows one',
    });
  }
  const made = isFactory(config.workers) ? await call(config.workers, cli, config, flags, logger) : config;
  if (config.engine !== undefined) atEnd(cli, config.engine);
  const {
    workers,
    actors,
    dispatcher = {},
    captures = [],
    projections = {},
  } = isRecord(made) ? made : { workers: made };
  if (!isRecord(dispatcher)) throw refuse(config.file, '"dispatcher" must be an object: the options of actors.run()');
  if (!isRecord(projections))
    throw refuse(config.file, '"projections" must be an object: the options of capture.run()');
  if (!isCaptures(captures)) throw refuse(config.file, '"captures" must be a list of what createCapture() made');
  const rest = { actors: isActors(actors) ? actors : undefined, dispatcher, captures, projections };
  const isEnough = rest.actors !== undefined || captures.length > 0;
  const entries = isEnough && workers === undefined ? [] : checkEntries(workers, config.file);
  return { entries: withTaken(entries, flags), ...rest };
}

type Factory = (given: { engine: PostgresEngine | DynamoEngine }) => unknown;

function isFactory(value: unknown): value is Factory {
  return typeof value === 'function';
}

/** Calls a function of the config file with an engine: that of the file, or one on the URL or the table of the command line. */
async function call(make: Factory, cli: Cli, config: Config, flags: WorkerFlags, logger: Logger): Promise<unknown> {
  const engine = config.engine ?? config.table ?? (await openEngine(cli, config, flags, logger));
  const made = await make({ engine });
  if (!isRecord(made)) return made;
  if (isEngine(made['engine']) && made['engine'] !== engine) atEnd(cli, made['engine']);
  return made;
}

async function openEngine(
  cli: Cli,
  config: Config,
  flags: WorkerFlags,
  logger: Logger,
): Promise<PostgresEngine | DynamoEngine> {
  if (cli.table !== undefined) return openTable(cli, cli.table, flags, logger);
  const { connections, stopTimeout } = flags;
  const options = { applicationName: 'pawl worker', max: connections, stopTimeoutMs: stopTimeout, logger };
  return cli.open(await needTarget(cli.globals, config), options);
}

function atEnd(cli: Cli, engine: PostgresEngine): void {
  cli.atEnd(() => engine.stop());
}

function refuse(file: string, problem: string): Failure {
  return new Failure(`${file}: ${problem}`, {
    exit: EXIT.usage,
    next: 'export default ({ engine }) => ({ workers: [{ queue, handlers, options }], actors, dispatcher: { concurrency: 50 }, captures: [orders] })',
  });
}

function checkEntries(list: unknown, file: string): WorkerEntry[] {
  if (!Array.isArray(list) || list.length === 0)
    throw refuse(file, '"workers" must be a list with at least one worker');
  return list.map((entry: unknown, index) => {
    if (!isRecord(entry)) throw refuse(file, `workers[${index}] must be an object with queue and handlers`);
    const { queue, handlers, options } = entry;
    if (!isQueue(queue)) throw refuse(file, `workers[${index}].queue must be made by createQueue()`);
    if (!isHandlers(handlers))
      throw refuse(file, `workers[${index}].handlers must be an object with a function for each kind`);
    if (options !== undefined && !isRecord(options)) throw refuse(file, `workers[${index}].options must be an object`);
    return options === undefined ? { queue, handlers } : { queue, handlers, options };
  });
}

function isQueue(value: unknown): value is Queue {
  return isRecord(value) && typeof value['name'] === 'string' && typeof value['work'] === 'function';
}

function isHandlers(value: unknown): value is WorkerEntry['handlers'] {
  return isRecord(value) && Object.values(value).every((handler) => typeof handler === 'function');
}
