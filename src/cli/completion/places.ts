import type { Command, Option } from 'commander';

/** A word that may come next, and what help says about it. */
export interface Word {
  readonly text: string;
  readonly about: string;
}

/** An option of a place, in all of its spellings. */
export interface Flag {
  readonly spellings: readonly string[];
  readonly about: string;
  /** Whether a value follows. */
  readonly takesValue: boolean;
  /** The values that it may have; empty: the name of a file, or any text. */
  readonly values: readonly string[];
}

/** The words of a program: those of each command, the program itself first, and the options that are valid everywhere. */
export interface Words {
  readonly places: readonly CommandWords[];
  readonly everywhere: readonly Flag[];
}

/** The words that may follow a command, in addition to the options that are valid everywhere. */
export interface CommandWords {
  /** `pawl queue stats`. */
  readonly path: string;
  readonly commands: readonly Word[];
  /** The values of its first argument, if that is one of a few. */
  readonly values: readonly string[];
  readonly flags: readonly Flag[];
}

export function wordsOf(program: Command): Words {
  const everywhere = program.options.filter(({ long }) => long !== '--version');
  const visit = (command: Command, path: string): CommandWords[] => {
    const options = command
      .createHelp()
      .visibleOptions(command)
      .filter((one) => !everywhere.includes(one));
    const place = {
      path,
      commands: command.commands.map((one) => ({ text: one.name(), about: one.description() })),
      values: command.registeredArguments[0]?.argChoices ?? [],
      flags: options.map(toFlag),
    };
    return [place, ...command.commands.flatMap((one) => visit(one, `${path} ${one.name()}`))];
  };
  return { places: visit(program, program.name()), everywhere: everywhere.map(toFlag) };
}

function toFlag({ short, long, description, required, optional, argChoices = [] }: Option): Flag {
  const spellings = [short, long].filter((one) => one !== undefined);
  return { spellings, about: description, takesValue: required || optional, values: argChoices };
}
