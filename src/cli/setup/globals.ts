import { type Command, InvalidArgumentError, Option } from 'commander';
import { type Duration, parseDuration } from '../../base/time/duration.ts';
import type { TimeStyle } from '../output/moment.ts';
import { FORMATS, type Format } from '../output/output.ts';
import type { Colour } from '../output/reporter.ts';

/** The options that every command takes. */
export interface Globals {
  readonly url?: string;
  readonly schema?: string;
  readonly config?: string;
  readonly output: Format;
  readonly quiet: boolean;
  readonly color: Colour;
  readonly time: TimeStyle;
  readonly timeout?: number;
  readonly dryRun: boolean;
  readonly yes: boolean;
  readonly readOnly: boolean;
  readonly verbose: boolean;
}

/** The options before the command line was read, or if it could not be read. */
export const DEFAULTS: Globals = {
  output: 'table',
  quiet: false,
  color: 'auto',
  time: process.stdout.isTTY === true ? 'relative' : 'iso',
  dryRun: false,
  yes: false,
  readOnly: false,
  verbose: false,
};

/** Adds these options to the program; they may stand before or after the command's name. */
export function addGlobals(program: Command): void {
  const choice = (flags: string, text: string, choices: readonly string[], fallback: string): Option =>
    new Option(flags, text).choices(choices).default(fallback);
  program
    .option('--url <url>', 'database to use; else PAWL_URL, DATABASE_URL, or url in the config file')
    .option('--schema <name>', 'schema of Pawl in it; else PAWL_SCHEMA, schema in the config file, or pawl')
    .option('--config <file>', 'config file; else pawl.config.js, .mjs or .json in this folder')
    .addOption(choice('-o, --output <format>', 'form of the data on stdout', FORMATS, DEFAULTS.output))
    .option('-q, --quiet', 'print only ids')
    .addOption(choice('--color <when>', 'colours', ['auto', 'always', 'never'], DEFAULTS.color))
    .addOption(
      new Option('--time <style>', 'times in tables')
        .choices(['relative', 'iso'])
        .default(DEFAULTS.time, 'relative on a terminal, else iso'),
    )
    .option('--timeout <duration>', 'give up after this long, e.g. 10s', durationArgument)
    .option('--dry-run', 'print what would be done, and change nothing')
    .option('--yes', 'do not ask for confirmation')
    .option('--read-only', 'refuse every command that changes something')
    .option('-v, --verbose', 'say more');
}

/** Reads a duration of the command line. @throws InvalidArgumentError */
export function durationArgument(value: string): number {
  try {
    return parseDuration(/^\d+$/.test(value) ? Number(value) : value, { field: 'it', min: 1 });
  } catch (error) {
    throw new InvalidArgumentError(error instanceof Error ? error.message : String(error));
  }
}

/** An option that takes a duration. Its default is shown as a person would write it. */
export function durationOption(
  flags: string,
  text: string,
  fallback: Duration,
  read: (value: string) => number = durationArgument,
): Option {
  const ms = fallback === 'Infinity' ? Infinity : parseDuration(fallback, { field: 'default' });
  return new Option(flags, text).argParser(read).default(ms, ms === Infinity ? 'without end' : String(fallback));
}

/** Makes a reader of whole numbers of the command line. */
export function wholeNumber(min: number, max: number): (value: string) => number {
  return (value) => {
    const number = /^-?\d+$/.test(value) ? Number(value) : Number.NaN;
    if (number >= min && number <= max) return number;
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
  };
}
