import { expect, test } from 'vitest';
import { readTime, showTime } from '../../src/cli/output/moment.ts';
import { progressLine } from '../../src/cli/output/progress.ts';
import { tableLines } from '../../src/cli/output/table.ts';

test('a table pads its columns, and the widest gives way where the line is too long', () => {
  const columns = [{ title: 'ID', align: 'right' as const }, { title: 'TEXT' }];
  expect(
    tableLines(columns, [
      ['7', 'a'],
      ['10', 'b'],
    ]),
  ).toEqual(['ID  TEXT', ' 7  a', '10  b']);
  const lines = tableLines(columns, [['7', 'x'.repeat(100)]], { width: 30 });
  expect(Math.max(...lines.map((line) => line.length))).toBe(30);
  expect(lines[1]).toMatch(/…$/);
});

test('what says what is wrong goes on in the next line, and is not cut', () => {
  const columns = [{ title: 'CHECK' }, { title: 'DETAIL', wraps: true }];
  const detail = `the database cannot be reached (connect ECONNREFUSED 127.0.0.1:5432) at ${'x'.repeat(30)}`;
  const lines = tableLines(
    columns,
    [
      ['connection', detail],
      ['url', 'short'],
    ],
    { width: 36 },
  );
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(36);
  expect(lines.join('').replaceAll(/\s+/g, '')).toContain(detail.replaceAll(' ', ''));
  expect(lines[2]).toMatch(/^ {12}\S/);
  expect(lines.at(-1)).toBe('url         short');
});

test('a cell keeps to its line and brings nothing a terminal would act on', () => {
  expect(tableLines([{ title: 'T' }], [['a\nb\u001b[31mc\u202ed']])[1]).toBe('a b [31mc d');
});

test('times are shown from now, or as ISO', () => {
  const now = Date.UTC(2026, 10, 21, 12);
  const shown = [-200, -59_000, 3_600_000, -3 * 86_400_000].map((ms) => showTime(new Date(now + ms), 'relative', now));
  expect(shown).toEqual(['now', '59s ago', 'in 1h', '3d ago']);
  expect(showTime(new Date(now), 'iso', now)).toBe('2026-11-21T12:00:00.000Z');
});

test('times are read as ISO or as a wait, and nothing else', () => {
  expect(readTime('10m', 1000)?.getTime()).toBe(601_000);
  expect(readTime('2026-12-24T18:00:00Z')?.toISOString()).toBe('2026-12-24T18:00:00.000Z');
  for (const text of ['tomorrow', '5', '2026-13-40', '', '99999999999d']) expect(readTime(text)).toBeUndefined();
});

test('progress shows how far, and how fast', () => {
  expect(progressLine('drain', 50, 100, 1000)).toMatch(/^drain {2}\[=+ +\] {2}50 % {2}50\/100 {2}50\/s$/);
  expect(progressLine('drain', 0, 0, 0)).toContain('100 %');
});
