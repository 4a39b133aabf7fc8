import { type Argument, Command, CommanderError } from 'commander';
import { packageVersion } from '../engine/version.ts';
import { EXIT, exitCodeOf, messageOf, nextStepOf } from './output/failure.ts';
import { type Colour, Talk } from './output/reporter.ts';
import { addGlobals, DEFAULTS } from './setup/globals.ts';
import { examples } from './setup/help.ts';
import { nextAfter } from './setup/unknown-command.ts';

type Add = (program: Command) => void;

/** In the order in which help lists them. A command is loaded when it is named: to load all takes 0.2 s of the processor. */
const COMMANDS: Record<string, () => Promise<Add>> = {
  dev: async () => (await import('./dev/dev.ts')).addDev,
  migrate: async () => (await import('./migrate/migrate.ts')).addMigrate,
  doctor: async () => (await import('./doctor/doctor.ts')).addDoctor,
  dashboard: async () => (await import('./commands/dashboard.ts')).addDashboard,
  worker: async () => (await import('./worker/worker.ts')).addWorker,
  queue: async () => (await import('./commands/queue.ts')).addQueue,
  topic: async () => (await import('./commands/queue/topic.ts')).addTopic,
  flow: async () => (await import('./commands/queue/flow.ts')).addFlow,
  batch: async () => (await import('./commands/queue/batch.ts')).addBatch,
  job: async () => (await import('./commands/job.ts')).addJob,
  schedule: async () => (await import('./commands/schedule.ts')).addSchedule,
  lock: async () => (await import('./commands/lock.ts')).addLock,
  actor: async () => (await import('./commands/actor.ts')).addActor,
  page: async () => (await import('./commands/page.ts')).addPage,
  capture: async () => (await import('./commands/capture.ts')).addCapture,
  file: async () => (await import('./commands/file.ts')).addFile,
  repl: async () => (await import('./commands/repl.ts')).addRepl,
  bench: async () => (await import('./bench/bench.ts')).addBench,
  completion: async () => {
    const { addCompletion } = await import('./completion/completion.ts');
    return (program) => addCompletion(program, wholeProgram);
  },
  version: async () => (await import('./version.ts')).addVersion,
};

/**
 * Runs the command of `words`, the words after `pawl`.
 * @returns its exit code, of docs/cli.md; all output was written before
 */
export async function runCommandLine(words: readonly string[]): Promise<number> {
  const program = makeProgram();
  const talk = (): Talk => new Talk(program.opts<{ color?: Colour }>().color ?? DEFAULTS.color, false);
  try {
    await addCommands(program, words);
    await program.parseAsync(words, { from: 'user' });
    return Number(process.exitCode ?? EXIT.done);
  } catch (error) {
    if (error instanceof CommanderError) {
      // Help that the user asked for is an answer; help because a command is missing is a complaint.
      if (error.exitCode !== 0 && error.code !== 'commander.help') talk().next(nextAfter(error, program, words));
      return error.exitCode === 0 ? EXIT.done : EXIT.usage;
    }
    talk().fail(messageOf(error), nextStepOf(error));
    return exitCodeOf(error);
  }
}

/**
 * Adds the commands whose names are in `words`; without such a name, all of them, for the help or the complaint that follows.
 */
async function addCommands(program: Command, words: readonly string[]): Promise<void> {
  const all = Object.entries(COMMANDS);
  const named = all.filter(([name]) => words.includes(name));
  const adds = await Promise.all((named.length > 0 ? named : all).map(([, load]) => load()));
  for (const add of adds) add(program);
}

async function wholeProgram(): Promise<Command> {
  const program = makeProgram();
  await addCommands(program, []);
  return program;
}

function makeProgram(): Command {
  const program = new Command('pawl')
    .description('locks, queues and state machines on the database you already run')
    .version(packageVersion(), '-V, --version', 'print the version of pawl')
    .exitOverride()
    .configureHelp({
      showGlobalOptions: true,
      // With long terms and few columns, a description that is not wrapped would be wider than any terminal.
      minWidthToWrap: 16,
      subcommandTerm: (command) => [command.name(), ...command.registeredArguments.map(termOf)].join(' '),
    })
    .helpCommand('help [command]', 'explain a command');
  addGlobals(program);
  examples(program, ['pawl dev', 'pawl doctor --url postgres://localhost/app']);
  return program;
}

/** `<queue>`, or `[payload]` if it may be left out. */
function termOf(argument: Argument): string {
  const name = `${argument.name()}${argument.variadic ? '...' : ''}`;
  return argument.required ? `<${name}>` : `[${name}]`;
}
