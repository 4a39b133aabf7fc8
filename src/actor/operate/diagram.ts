import { escapeHtml } from '../../base/escape-html.ts';
import type { Machine } from '../machine.ts';

/** Data to draw in addition to the machine. */
export interface DiagramOptions {
  /** The number of actors in each state. */
  readonly counts?: Readonly<Record<string, number>> | undefined;
  /** The state to highlight. */
  readonly current?: string | undefined;
}

/** The machine as a Mermaid state diagram, which GitHub, GitLab and many editors draw. */
export function mermaid({ initial, always, states }: Machine, { counts }: DiagramOptions = {}): string {
  const lines = ['stateDiagram-v2', `  [*] --> ${safe(initial)}`];
  for (const name of Object.keys(states)) {
    const n = counts?.[name];
    const label = n === undefined || n === 0 ? name : `${name} (${n})`;
    lines.push(`  state "${label}" as ${safe(name)}`);
  }
  for (const [name, { to, giveUp, tries }] of Object.entries(states)) {
    for (const target of to) {
      const why = target === giveUp ? ` : after ${tries} tries` : '';
      lines.push(`  ${safe(name)} --> ${safe(target)}${why}`);
    }
    for (const [semaphore, target] of Object.entries(always)) {
      if (target !== name) lines.push(`  ${safe(name)} --> ${safe(target)} : ${semaphore}`);
    }
    if (to.length === 0) lines.push(`  ${safe(name)} --> [*]`); // no other state comes next, so the actor ends there
  }
  return `${lines.join('\n')}\n`;
}

function safe(name: string): string {
  return name.replace(/\W/g, (letter) => `_${letter.charCodeAt(0).toString(16)}_`);
}

const BOX = { width: 150, height: 40, gapX: 40, gapY: 54, pad: 24 } as const;

interface BoxPosition {
  readonly x: number;
  readonly y: number;
  readonly row: number;
}

/** The machine as SVG that loads nothing: rows by the distance from the initial state. */
export function svg(machine: Machine, { counts, current }: DiagramOptions = {}): string {
  const rows = rowsOf(machine);
  const widest = rows.reduce((most, row) => Math.max(most, row.length), 0);
  const width = BOX.pad * 2 + widest * (BOX.width + BOX.gapX) - BOX.gapX + 60;
  const height = BOX.pad * 2 + rows.length * (BOX.height + BOX.gapY) - BOX.gapY;
  const places = new Map<string, BoxPosition>();
  for (const [index, row] of rows.entries()) {
    const used = row.length * (BOX.width + BOX.gapX) - BOX.gapX;
    for (const [column, name] of row.entries()) {
      const x = (width - used) / 2 + column * (BOX.width + BOX.gapX);
      places.set(name, { x, y: BOX.pad + index * (BOX.height + BOX.gapY), row: index });
    }
  }
  const named = (names: readonly string[]): BoxPosition[] =>
    [...places].filter(([name]) => names.includes(name)).map(([, place]) => place);
  const edges = Object.entries(machine.states).flatMap(([name, { to, giveUp }]) =>
    named([name]).flatMap((from) =>
      to.flatMap((target) => named([target]).map((place) => edge(from, place, target === giveUp))),
    ),
  );
  const forced = Object.entries(machine.always).flatMap(([semaphore, target]) =>
    named([target]).map((place) => note(place, semaphore)),
  );
  const boxes = [...places].map(([name, place]) =>
    box(name, place, counts?.[name], name === current, name === machine.initial),
  );
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="system-ui, sans-serif" font-size="13">`,
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" fill="#667"/></marker></defs>',
    ...edges,
    ...boxes,
    ...forced,
    '</svg>',
  ].join('\n');
}

/** States by the number of steps from the initial one; states that no steps reach come last. */
function rowsOf({ initial, states }: Machine): string[][] {
  const rows: string[][] = [];
  const seen = new Set([initial]);
  for (let row = [initial]; row.length > 0; ) {
    rows.push(row);
    const from = new Set(row);
    const targets = Object.entries(states).flatMap(([name, { to }]) => (from.has(name) ? to : []));
    row = [...new Set(targets)].filter((name) => !seen.has(name));
    for (const name of row) seen.add(name);
  }
  const rest = Object.keys(states).filter((name) => !seen.has(name));
  for (let at = 0; at < rest.length; at += 4) rows.push(rest.slice(at, at + 4));
  return rows;
}

function box(
  name: string,
  { x, y }: BoxPosition,
  count: number | undefined,
  isCurrent: boolean,
  isInitial: boolean,
): string {
  const fill = isCurrent ? '#ffd866' : '#f4f5f8';
  const label = escapeHtml(name);
  const badge =
    count === undefined || count === 0
      ? ''
      : `<text x="${x + BOX.width - 8}" y="${y + 15}" text-anchor="end" font-size="11" fill="#246">${count}</text>`;
  const start = isInitial ? `<circle cx="${x + 12}" cy="${y + BOX.height / 2}" r="4" fill="#246"/>` : '';
  return `<g><rect x="${x}" y="${y}" width="${BOX.width}" height="${BOX.height}" rx="8" fill="${fill}" stroke="#667"/>${start}<text x="${x + BOX.width / 2}" y="${y + BOX.height / 2 + 5}" text-anchor="middle">${label}</text>${badge}</g>`;
}

/** @param isForced  the transition follows failures, and the body does not ask for it: dashed */
function edge(a: BoxPosition, b: BoxPosition, isForced: boolean): string {
  const path = (d: string): string => line(d, isForced);
  const middle = BOX.width / 2;
  if (a === b) {
    const [x, y] = [a.x + BOX.width, a.y + BOX.height / 2];
    return path(`M${x} ${y - 8} C${x + 30} ${y - 14} ${x + 30} ${y + 14} ${x} ${y + 8}`);
  }
  if (b.row === a.row) {
    const [x1, x2] = b.x > a.x ? [a.x + BOX.width, b.x] : [a.x, b.x + BOX.width];
    return path(`M${x1} ${a.y + BOX.height / 2} L${x2} ${b.y + BOX.height / 2}`);
  }
  if (b.row > a.row) {
    const [y1, y2] = [a.y + BOX.height, b.y];
    const bend = (y2 - y1) / 2;
    return path(
      `M${a.x + middle} ${y1} C${a.x + middle} ${y1 + bend} ${b.x + middle} ${y2 - bend} ${b.x + middle} ${y2}`,
    );
  }
  // Back up, around the right-hand side.
  const [x1, x2] = [a.x + BOX.width, b.x + BOX.width];
  const out = Math.max(x1, x2) + 34;
  return path(`M${x1} ${a.y + BOX.height / 2} C${out} ${a.y} ${out} ${b.y + BOX.height} ${x2} ${b.y + BOX.height / 2}`);
}

function line(d: string, isDashed: boolean): string {
  const dashes = isDashed ? ' stroke-dasharray="5 4"' : '';
  return `<path d="${d}" fill="none" stroke="#667"${dashes} marker-end="url(#arrow)"/>`;
}

function note(place: BoxPosition, semaphore: string): string {
  return `<text x="${place.x + BOX.width / 2}" y="${place.y - 8}" text-anchor="middle" font-size="11" fill="#a33">always: ${escapeHtml(semaphore)}</text>`;
}
