/**
 * The destination of Pawl's logs. A pino logger fits without changes, another one with a few lines. Fields come first, then the
 * message.
 */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent';

export interface StderrLoggerOptions {
  /** The lowest level that is written. Default `info`. */
  readonly level?: LogLevel | undefined;
  /** One JSON object a line. Default: JSON unless stderr is a terminal. */
  readonly json?: boolean | undefined;
  /** Called with each line, which ends with a newline. Default: writes to stderr. */
  readonly write?: ((line: string) => void) | undefined;
}

const LEVELS: Readonly<Record<LogLevel, number>> = { debug: 20, info: 30, warn: 40, error: 50, silent: 60 };

/** Logs to stderr, so that stdout stays free for data. Never throws, whatever the fields contain. */
export function stderrLogger(options: StderrLoggerOptions = {}): Logger {
  const { level = 'info', json = process.stderr.isTTY !== true } = options;
  const write = options.write ?? ((line: string): void => void process.stderr.write(line));
  const form = json ? jsonLine : textLine;
  const at = (name: LogLevel): Logger['info'] => {
    if (LEVELS[name] < LEVELS[level]) return () => {};
    return (fields, message) => write(`${form(name, fields, message)}\n`);
  };
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

function jsonLine(level: LogLevel, fields: object, message: string): string {
  const time = new Date().toISOString();
  try {
    return JSON.stringify({ time, level, message, ...fields }, plain);
  } catch {
    // The fields contain a cycle, or a toJSON that throws: a line without its fields is better than no line, or an error from a
    // log call.
    return JSON.stringify({ time, level, message, fields: 'could not be written as JSON' });
  }
}

function textLine(level: LogLevel, fields: object, message: string): string {
  const parts = Object.entries(fields).map(([name, value]) => `${name}=${textOf(value)}`);
  return [new Date().toISOString().slice(11, 23), level.toUpperCase().padEnd(5), harmless(message), ...parts].join(' ');
}

function textOf(value: unknown): string {
  if (value instanceof Error) return harmless(value.stack ?? value.message);
  if (typeof value !== 'object' || value === null) return harmless(String(value));
  try {
    return harmless(JSON.stringify(value, plain));
  } catch {
    return '[object]';
  }
}

/** The class of the characters that a terminal acts on, or that change the order of others: for regular expressions with `u`. */
export const ACTIVE: string = String.raw`[\p{Cc}\p{Cf}\u2028\u2029]`;

const EXCEPT_LINES = new RegExp(String.raw`(?![\n\t])${ACTIVE}`, 'gu');

/** A text of other people, such as an error that quotes a payload, without any character that a terminal would act on, except ends of lines. */
export function harmless(text: string): string {
  return text.replace(EXCEPT_LINES, ' ');
}

/** Values that JSON has no form for: a bigint becomes a decimal string, an error its name, code, message, stack and cause. */
function plain(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return String(value);
  if (!(value instanceof Error)) return value;
  const { name, message, stack, cause } = value;
  return Object.assign({}, value, { name, message, stack, cause });
}
