#!/usr/bin/env node
import { Command, CommanderError } from 'commander';
import { addActor } from './actor.ts';
import { addBench } from './bench.ts';
import { addCapture } from './capture.ts';
import { addDashboard } from './dashboard.ts';
import { addDev } from './dev.ts';
import { addDoctor } from './doctor.ts';
import { EXIT, exitCodeOf, messageOf, nextStepOf } from './failure.ts';
import { addFile } from './file.ts';
import { addGlobals, DEFAULTS } from './globals.ts';
import { examples } from './help.ts';
import { addJob } from './job.ts';
import { addLock } from './lock.ts';
import { addMigrate } from './migrate.ts';
import { addPage } from './page.ts';
import { addQueue } from './queue.ts';
import { addRepl } from './repl.ts';
import { type Colour, Talk } from './talk.ts';
import { addVersion, packageVersion } from './version.ts';
import { addWorker } from './worker.ts';

function makeProgram(): Command {
  const program = new Command('pawl')
    .description('locks, queues and state machines on the database you already run')
    .version(packageVersion(), '--version', 'print the version of pawl')
    .exitOverride()
    .configureHelp({ showGlobalOptions: true })
    .showHelpAfterError('next:  add --help to see what there is')
    .helpCommand('help [command]', 'explain a command');
  addGlobals(program);
  examples(program, ['pawl dev', 'pawl doctor --url postgres://localhost/app']);
  addDev(program);
  addMigrate(program);
  addDoctor(program);
  addDashboard(program);
  addWorker(program);
  addQueue(program);
  addJob(program);
  addLock(program);
  addActor(program);
  addPage(program);
  addCapture(program);
  addFile(program);
  addRepl(program);
  addBench(program);
  addVersion(program);
  return program;
}

/** Every ending is an exit code of docs/cli.md, and everything was written before it. */
async function main(): Promise<number> {
  const program = makeProgram();
  try {
    await program.parseAsync();
    return Number(process.exitCode ?? EXIT.done);
  } catch (error) {
    if (error instanceof CommanderError) {
      // Help that was asked for is an answer; help because a command is missing is a complaint.
      return error.exitCode === 0 ? EXIT.done : EXIT.usage;
    }
    const { color = DEFAULTS.color }: { color?: Colour } = program.opts();
    new Talk(color, false).fail(messageOf(error), nextStepOf(error));
    return exitCodeOf(error);
  }
}

for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    // Whoever read our output has seen enough, as `head` does.
    if (error.code === 'EPIPE') process.exit(EXIT.done);
    throw error;
  });
}

const code = await main();
await new Promise<void>((resolve) => process.stdout.write('', () => resolve()));
// A config file may have opened what only its author can close; the command is done all the same.
process.exit(code);
