import { describe, expect, test } from 'vitest';
import { diagnosticsHtml } from '../../../src/actor/operate/diagnostics.ts';
import { mermaid, svg } from '../../../src/actor/operate/diagram.ts';
import { explain } from '../../../src/actor/operate/explain.ts';
import type { ActorRecord, PageRecord } from '../../../src/actor/record.ts';

const machine = {
  initial: 'left side',
  always: { destroy: 'over' },
  states: {
    'left side': { to: ['middle', 'right'] },
    // To itself, to both neighbours of its row, and back up.
    middle: { to: ['middle', 'right', 'left side'] },
    right: { to: ['middle', 'below'] },
    below: { to: [] },
    over: { to: [] },
  },
};

const record: ActorRecord = {
  id: '7',
  type: 'box',
  state: 'middle',
  status: 'napping',
  key: null,
  parent: null,
  attempt: 0,
  error: null,
  enteredAt: new Date('2026-01-01T00:00:00Z'),
  wakeAt: null,
  createdAt: new Date('2026-01-01T00:00:00Z'),
  visit: 1,
  epoch: 1,
  fields: {},
  version: 1,
  result: null,
  openChildren: 0,
  semaphores: {},
  messages: 0,
  timers: {},
  deadlineAt: null,
  finishedAt: null,
  pausedAt: null,
  typePausedAt: null,
  statePausedAt: null,
  held: null,
  lost: 0,
  dueInMs: 60_000,
  worker: null,
  workers: 1,
  ahead: null,
  machine,
};

const page: PageRecord = {
  id: '1',
  tag: 'box:7',
  severity: 'error',
  status: 'open',
  summary: 'the box is open',
  details: null,
  actor: '7',
  root: null,
  suppressed: false,
  count: 1,
  openedAt: new Date('2026-01-01T00:00:00Z'),
  seenAt: new Date('2026-01-01T00:00:00Z'),
  ackedAt: null,
  ackedBy: null,
  resolvedAt: null,
};

test('a machine is drawn with every state and transition once, whichever way it leads', () => {
  const text = mermaid(machine, { counts: { middle: 3, right: 0 } });
  expect(text).toContain('[*] --> left_20_side');
  expect(text).toContain('state "middle (3)" as middle');
  expect(text).toContain('state "right" as right');
  expect(text.match(/-->/g)).toHaveLength(1 + 7 + 4 + 2);
  expect(text.match(/.*--> \[\*\]/g)).toEqual(['  below --> [*]', '  over --> [*]']);
  const drawn = svg(machine, { counts: { middle: 3, right: 0 }, current: 'middle' });
  expect(drawn.match(/<rect /g)).toHaveLength(5);
  expect(drawn.match(/marker-end/g)).toHaveLength(7);
  expect(drawn.match(/always: destroy/g)).toHaveLength(1);
  expect(drawn.match(/fill="#ffd866"/g)).toHaveLength(1);
  expect(drawn).toContain('>3</text>');
});

describe('explain says', () => {
  test.each<[Partial<ActorRecord>, RegExp]>([
    [{}, /naps for another 1m/],
    [{ dueInMs: 20_159 }, /naps for another 20s$/],
    [{ dueInMs: 1_209_599_456 }, /naps for another 14d$/],
    [{ dueInMs: 1234 }, /naps for another 1\.234s$/],
    [
      { attempt: 1, error: 'Error: no\n at x', status: 'backing off' },
      /its last turn failed; it is tried again in 1m: Error: no$/,
    ],
    [{ attempt: 3, status: 'due', dueInMs: -1000 }, /its last 3 turns failed: its process died/],
    [{ dueInMs: null, openChildren: 2 }, /hibernates until .*; 2 of its children are not final/],
    [{ status: 'due', dueInMs: -2000, ahead: 0 }, /due for 2s$/],
    [{ status: 'due', dueInMs: -2000, ahead: 5 }, /due for 2s; 5 of its type are due before it/],
    [{ status: 'due', dueInMs: -2000, workers: 0 }, /no worker of its type lives/],
    [{ held: 'no program knows it', dueInMs: -1 }, /no program knows it/],
  ])('%j', (parts, words) => {
    expect(explain({ ...record, ...parts }).reasons.some((reason) => words.test(reason))).toBe(true);
  });
});

describe('a diagnostics page', () => {
  const at = new Date(0);
  const nothing = { page: undefined, actor: undefined, history: [], children: [], at };

  test('shows what there is', () => {
    const child = { ...record, id: '8', type: 'lid', state: 'shut' };
    const history = [
      { at: new Date(0), epoch: 0, from: null, to: 'left side', reason: 'created', attempt: 0, error: null },
      {
        at: new Date(1),
        epoch: 1,
        from: 'left side',
        to: 'middle',
        reason: 'failed',
        attempt: 1,
        error: 'Error: no\n at x',
      },
    ];
    const actor = { ...record, attempt: 1, error: 'Error: <no>', semaphores: { go: 2 } };
    const html = diagnosticsHtml({ page: { ...page, details: { n: 1 } }, actor, history, children: [child], at });
    for (const part of [
      'the box is open',
      '&quot;n&quot;: 1',
      'Error: &lt;no&gt;',
      'lid 8',
      'left side → middle: failed: Error: no<',
      'pawl actor work 7',
    ]) {
      expect(html).toContain(part);
    }
  });

  test('of an actor, of a page, or of nothing has a title', () => {
    expect(diagnosticsHtml({ ...nothing, actor: { ...record, status: 'running', dueInMs: 0 } })).toContain(
      '<h1>box 7</h1>',
    );
    expect(
      diagnosticsHtml({ ...nothing, actor: { ...record, status: 'final', finishedAt: new Date(0) } }),
    ).not.toContain('pawl actor pause');
    const acked = { ...page, status: 'acked' as const, ackedAt: new Date(0) };
    expect(diagnosticsHtml({ ...nothing, page: acked })).toMatch(/acknowledged<\/th><td>1970-01-01T00:00:00.000Z</);
    expect(diagnosticsHtml({ ...nothing, page: { ...acked, ackedBy: 'ann' } })).toMatch(
      /1970-01-01T00:00:00.000Z by ann/,
    );
    expect(diagnosticsHtml(nothing)).toContain('<h1>actor</h1>');
  });
});
