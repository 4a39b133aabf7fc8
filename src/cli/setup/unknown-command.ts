import type { Command, CommanderError } from 'commander';

const HELP = 'add --help to see the commands and options';

/**
 * The advice about words that are no command line. If one word is no command of its group, the advice lists the commands of the
 * group. At the top level, it names the groups that have such a command.
 */
export function nextAfter(error: CommanderError, program: Command, words: readonly string[]): string {
  const word = /^error: unknown command '(.+?)'/.exec(error.message)?.[1];
  if (word === undefined) return HELP;
  let group = program;
  for (const each of words) group = group.commands.find((command) => command.name() === each) ?? group;
  if (group !== program) return `${pathOf(group)} has ${namesOf(group).join(', ')}`;
  const others = program.commands.filter((command) => namesOf(command).includes(word));
  return others.length === 0 ? HELP : others.map((other) => `${pathOf(other)} ${word}`).join(', or ');
}

function namesOf(group: Command): string[] {
  return group.commands.map((command) => command.name()).filter((name) => name !== 'help');
}

function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}
