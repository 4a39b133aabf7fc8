import { Draw } from '../../../support/random.ts';
import type { CaptureHistory, Difference, LogRow } from './history.ts';

/** Bugs of a simulated capture. */
export const BUGS = [
  'a row is stale',
  'a row is left over',
  'a row is missing',
  'a change is not noted',
  'a change is noted that was rolled back',
  'a change is not given',
  'a change is given twice',
  'a change is given that was not made',
  'two changes of a row are given the wrong way round',
] as const;
export type Bug = (typeof BUGS)[number];

/** A legal history: equal rows, and a log of all committed changes. A follower gets the changes of a row in order. */
export function simulate(seed: number, bug?: Bug): CaptureHistory {
  const draw = new Draw(seed, 'history');
  const log = drawLog(draw);
  const history: CaptureHistory = {
    rows: draw.int(1, 9),
    differences: [],
    audit: draw.some(
      log.filter(({ op }) => op !== 'truncate'),
      log.length,
    ),
    log,
    journal: inOrderOfRows(draw, log),
    wrong: [],
    complaints: [],
  };
  return bug === undefined ? history : spoil(history, bug, draw);
}

function drawLog(draw: Draw): LogRow[] {
  const log: LogRow[] = [];
  let change = 0;
  for (let left = draw.int(4, 30); left > 0; left -= 1) {
    change += draw.int(1, 3);
    const source = draw.pick('orders', 'order_line');
    const op = draw.pick('insert', 'update', 'update', 'delete', 'truncate');
    log.push({ change, source, op, key: op === 'truncate' ? null : String(draw.int(1, 4)) });
  }
  // One row always has two changes.
  for (const op of ['update', 'delete']) log.push({ change: (change += 1), source: 'orders', op, key: 'x' });
  return log;
}

/** Late commits are delivered late. Changes of a row of the root keep their order. */
function inOrderOfRows(draw: Draw, log: readonly LogRow[]): LogRow[] {
  const left = log.map((one) => ({ one, row: one.source === 'orders' && one.key !== null ? one.key : undefined }));
  const given: LogRow[] = [];
  while (left.length > 0) {
    const at = draw.int(0, Math.min(3, left.length - 1));
    const row = left[at]?.row;
    const first = row === undefined ? at : left.findIndex((each) => each.row === row);
    given.push(...left.splice(first, 1).map(({ one }) => one));
  }
  return given;
}

function spoil(history: CaptureHistory, bug: Bug, draw: Draw): CaptureHistory {
  const { audit, log, journal } = history;
  const nth = <T>(all: readonly T[]): number => draw.int(0, all.length - 1);
  const differs = (wanted: string | null, found: string | null): CaptureHistory => {
    const difference: Difference = { table: 'orders_a', key: '1', wanted, found };
    return { ...history, differences: [difference] };
  };
  const at = nth(journal);
  switch (bug) {
    case 'a row is stale':
      return differs('(new)', '(old)');
    case 'a row is left over':
      return differs(null, '(old)');
    case 'a row is missing':
      return differs('(new)', null);
    case 'a change is not noted': {
      const gone = audit[nth(audit)];
      const change = log.find(
        (one) => one.source === gone?.source && one.op === gone.op && one.key === gone.key,
      )?.change;
      return {
        ...history,
        log: log.filter((one) => one.change !== change),
        journal: journal.filter((one) => one.change !== change),
      };
    }
    case 'a change is noted that was rolled back':
      return { ...history, audit: audit.toSpliced(nth(audit), 1) };
    case 'a change is not given':
      return { ...history, journal: journal.toSpliced(at, 1) };
    case 'a change is given twice':
      return { ...history, journal: journal.flatMap((one, index) => (index === at ? [one, one] : [one])) };
    case 'a change is given that was not made':
      return { ...history, journal: [...journal, { change: 1_000_000, source: 'order_line', op: 'insert', key: '1' }] };
    case 'two changes of a row are given the wrong way round': {
      const [first, second] = journal.filter(({ key }) => key === 'x');
      return {
        ...history,
        journal: journal.map((one) => (one === first ? (second ?? one) : one === second ? (first ?? one) : one)),
      };
    }
  }
}
