import { describe, expect, test } from 'vitest';
import { LeaseLost } from '../../src/base/errors.ts';
import { type LogLevel, stderrLogger } from '../../src/base/logger.ts';

function collect(level: LogLevel, json: boolean): { lines: string[]; logger: ReturnType<typeof stderrLogger> } {
  const lines: string[] = [];
  return { lines, logger: stderrLogger({ level, json, write: (line) => lines.push(line) }) };
}

describe('stderrLogger', () => {
  test('writes one JSON object a line, with bigints and errors in full', () => {
    const { lines, logger } = collect('debug', true);
    logger.error({ token: 7n, err: new LeaseLost('gone', { cause: new Error('why') }) }, 'lost\nit');
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/^[^\n]+\n$/);
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({
      level: 'error',
      message: 'lost\nit',
      token: '7',
      err: { name: 'LeaseLost', code: 'lease_lost', message: 'gone', cause: { message: 'why' } },
    });
  });

  test('writes a line for people on a terminal', () => {
    const { lines, logger } = collect('info', false);
    logger.warn({ queue: 'mail', detail: { a: 1n }, err: 'x' }, 'slow');
    expect(lines[0]).toMatch(/^\d\d:\d\d:\d\d\.\d{3} WARN {2}slow queue=mail detail=\{"a":"1"\} err=x\n$/);
  });

  test('passes no character on to a terminal that it would act on', () => {
    const { lines, logger } = collect('info', false);
    const evil = '\u001b]0;owned\u0007\u009b31m\u202ered\r';
    logger.error({ key: evil, list: [evil], error: new Error(`${evil}\nsecond`) }, `job ${evil} failed`);
    expect(lines[0]).toContain('second');
    expect(lines[0]?.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}]/u);
  });

  test.each<[LogLevel, number]>([
    ['debug', 4],
    ['info', 3],
    ['warn', 2],
    ['error', 1],
    ['silent', 0],
  ])('at level %s it writes %d of the four levels', (level, count) => {
    const { lines, logger } = collect(level, true);
    logger.debug({}, 'm');
    logger.info({}, 'm');
    logger.warn({}, 'm');
    logger.error({}, 'm');
    expect(lines).toHaveLength(count);
  });

  test('fields that cannot be written do not make a log call throw', () => {
    const cyclic: { self?: object } = {};
    cyclic.self = cyclic;
    for (const json of [true, false]) {
      const { lines, logger } = collect('info', json);
      logger.info({ cyclic }, 'still here');
      expect(lines[0]).toContain('still here');
    }
  });
});
