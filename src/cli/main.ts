#!/usr/bin/env node
import { runCommandLine } from './command-line.ts';
import { EXIT } from './output/failure.ts';

for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    // The reader of our output has read enough, as `head` does.
    if (error.code === 'EPIPE') process.exit(EXIT.done);
    throw error;
  });
}

const code = await runCommandLine(process.argv.slice(2));
await new Promise<void>((resolve) => process.stdout.write('', () => resolve()));
// A config file may have opened resources that only its author can close. The command is done anyway.
process.exit(code);
