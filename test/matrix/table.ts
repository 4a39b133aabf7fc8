import { readFileSync } from 'node:fs';
import type { WaitOutcome } from './pair.ts';

const PAGE = new URL('../../docs/waiting.md', import.meta.url);
const BRIEFLY = ' (for a moment)';

/** Whose objects the second move is about: those of the first one, or those of another client of the same queue. */
export const WHOSE = ['the same', "another's"] as const;
export type Whose = (typeof WHOSE)[number];

/** Who waits for whom, as a part of docs/waiting.md says: what is not in its table does not wait. */
export class WaitingTable {
  readonly #waits = new Map<string, WaitOutcome>();
  /** The lines so far: of two lines about the same, one is out of date. */
  readonly #firsts = new Set<string>();

  static read(part: string): WaitingTable {
    const page = readFileSync(PAGE, 'utf8');
    const section = page.split(/^## /m).find((text) => text.startsWith(`${part}\n`));
    if (section === undefined) throw new Error(`docs/waiting.md has no section "${part}"`);
    const table = new WaitingTable();
    for (const line of section.split('\n').filter((text) => text.startsWith('| '))) table.#add(line);
    return table;
  }

  expect(first: string, second: string, whose: Whose): WaitOutcome {
    return this.#waits.get(keyOf(first, second, whose)) ?? 'no';
  }

  note(first: string, second: string, whose: Whose, waited: WaitOutcome): void {
    if (waited !== 'no') this.#waits.set(keyOf(first, second, whose), waited);
  }

  /** A line for each pair that waits, to be compared. */
  get lines(): string[] {
    return [...this.#waits].map(([key, waited]) => `${key}${waited === 'yes' ? '' : BRIEFLY}`).sort();
  }

  /** A line: | while this is open | of | these wait | why | */
  #add(line: string): void {
    const [first = '', whose = '', seconds = ''] = line
      .split('|')
      .slice(1)
      .map((cell) => cell.trim());
    if (!WHOSE.some((known) => known === whose)) return;
    if (this.#firsts.has(`${first}, ${whose}`))
      throw new Error(`docs/waiting.md has two lines for "${first}", of ${whose}`);
    this.#firsts.add(`${first}, ${whose}`);
    for (const second of seconds.split(';').map((text) => text.trim())) {
      const isBrief = second.endsWith(BRIEFLY);
      const name = isBrief ? second.slice(0, -BRIEFLY.length) : second;
      this.#waits.set(`${first} → ${name}, ${whose}`, isBrief ? 'for a moment' : 'yes');
    }
  }
}

function keyOf(first: string, second: string, whose: Whose): string {
  return `${first} → ${second}, ${whose}`;
}
