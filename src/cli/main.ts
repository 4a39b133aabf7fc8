#!/usr/bin/env node
import { runCommandLine } from './command-line.ts';
import { EXIT } from './output/failure.ts';

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // The reader of our output has read enough, as `head` does.
  if (error.code === 'EPIPE') process.exit(EXIT.done);
  throw error;
});
process.stderr.on('error', (error: NodeJS.ErrnoException) => {
  // The work goes on without messages: a worker has handlers that run, and a command under a lock must not be cut off. The exit
  // code tells how it ended.
  if (error.code !== 'EPIPE') throw error;
});

const code = await runCommandLine(process.argv.slice(2));
await new Promise<void>((resolve) => process.stdout.write('', () => resolve()));
// A config file may have opened resources that only its author can close. The command is done anyway.
process.exit(code);
