import { promises } from 'node:readline';
import { styleText } from 'node:util';
import { harmless } from '../../base/logger.ts';
import { EXIT, Failure } from './failure.ts';

export type Colour = 'auto' | 'always' | 'never';

export type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan';

/** Paints for one stream, unless the stream is no terminal or NO_COLOR is set. `colour` overrides both. */
export function painter(stream: NodeJS.WriteStream, colour: Colour): (style: Style, text: string) => string {
  if (colour === 'never') return (_style, text) => text;
  if (colour === 'always') return (style, text) => styleText(style, text, { validateStream: false });
  return (style, text) => styleText(style, text, { stream });
}

/** Colours of our own, which stay. */
const PAINT = new RegExp(`(${'\u001b'}\\[\\d*m)`);

/** A line that may quote names and errors of other people: nothing in it moves the cursor, or changes the terminal. */
function shown(line: string): string {
  return line
    .split(PAINT)
    .map((part) => (PAINT.test(part) ? part : harmless(part)))
    .join('');
}

/** What a command says to people, on stderr: stdout is for data alone. */
export class Talk {
  readonly isTerminal: boolean = process.stderr.isTTY === true;
  readonly paint: (style: Style, text: string) => string;
  readonly #quiet: boolean;

  constructor(colour: Colour, quiet: boolean) {
    this.paint = painter(process.stderr, colour);
    this.#quiet = quiet;
  }

  /** A line of information; not with `-q`. */
  say(line = ''): void {
    if (!this.#quiet) process.stderr.write(`${shown(line)}\n`);
  }

  /** A warning, after which the command goes on. */
  warn(line: string): void {
    process.stderr.write(`${this.paint('yellow', 'warning:')} ${shown(line)}\n`);
  }

  /** What went wrong and why, and what to do about it. */
  fail(message: string, next: string | undefined): void {
    process.stderr.write(`${this.paint('red', 'error:')} ${shown(message)}\n`);
    if (next !== undefined) this.next(next);
  }

  /** What to do about the message before. */
  next(next: string): void {
    process.stderr.write(`${this.paint('bold', 'next:')}  ${shown(next)}\n`);
  }

  /**
   * Asks before an action that is hard to undo.
   * @throws Failure (usage) without a terminal, naming the flag; or if the answer is no
   */
  async confirm(question: string, signal: AbortSignal): Promise<void> {
    if (process.stdin.isTTY !== true || !this.isTerminal) {
      throw new Failure(`${question} There is no answer, since this is not a terminal`, {
        exit: EXIT.usage,
        next: 'add --yes',
      });
    }
    const prompt = promises.createInterface({ input: process.stdin, output: process.stderr });
    // When stdin ends, as by Ctrl-D, the question itself stays open for ever.
    const ended = new Promise<never>((_resolve, reject) => {
      prompt.once('close', () => reject(new Failure('nothing was done, as there was no answer')));
    });
    try {
      const answer = await Promise.race([prompt.question(`${shown(question)} [y/N] `, { signal }), ended]);
      if (!/^y(es)?$/i.test(answer.trim())) throw new Failure('nothing was done, as you answered no');
    } finally {
      prompt.close();
    }
  }
}
