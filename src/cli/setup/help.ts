import type { Command } from 'commander';

/** Puts examples at the top of a command's help: most people want an example to copy. */
export function examples(command: Command, lines: readonly string[]): Command {
  const text = lines.map((line) => `  $ ${line}`).join('\n');
  return command.addHelpText('before', `Examples:\n${text}\n`);
}
