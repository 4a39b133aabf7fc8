import { Argument, type Command } from 'commander';
import { examples } from '../setup/help.ts';
import { run } from '../setup/run.ts';
import { bashScript } from './bash.ts';
import { fishScript } from './fish.ts';
import { type Words, wordsOf } from './places.ts';
import { zshScript } from './zsh.ts';

const SCRIPTS = { bash: bashScript, zsh: zshScript, fish: fishScript } satisfies Record<
  string,
  (words: Words) => string
>;

/**
 * `pawl completion bash|zsh|fish`: prints a script with which a shell completes commands, options and their values. The script
 * knows the program that `whole` makes. It neither asks a database nor starts `pawl` while a person types.
 */
export function addCompletion(program: Command, whole: () => Promise<Command>): void {
  const command = program
    .command('completion')
    .description('print a script that completes commands and options in your shell')
    .addArgument(new Argument('<shell>', 'yours').choices(Object.keys(SCRIPTS)));
  examples(command, ['eval "$(pawl completion bash)"', 'pawl completion fish > ~/.config/fish/completions/pawl.fish']);
  command.action((shell: keyof typeof SCRIPTS, _options: object, self: Command) =>
    run(self, async (cli) => cli.out.text(SCRIPTS[shell](wordsOf(await whole())).trimEnd())),
  );
}
