import type { Logger } from '../../src/engine/postgres/index.ts';

/** A logger that keeps what it was told. */
export interface RecordedLog extends Logger {
  readonly lines: { level: 'debug' | 'info' | 'warn' | 'error'; message: string }[];
  count(level: string, pattern: RegExp): number;
}

export function recordLog(): RecordedLog {
  const lines: RecordedLog['lines'] = [];
  const keep =
    (level: 'debug' | 'info' | 'warn' | 'error') =>
    (_record: object, message: string): void => {
      lines.push({ level, message });
    };
  return {
    lines,
    count: (level, pattern) => lines.filter((line) => line.level === level && pattern.test(line.message)).length,
    debug: keep('debug'),
    info: keep('info'),
    warn: keep('warn'),
    error: keep('error'),
  };
}
