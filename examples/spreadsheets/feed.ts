import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../random.ts';
import type { Client } from './client.ts';
import type { Ledger } from './ledger.ts';
import type { Sample } from './samples.ts';
import type { Cell } from './sheet.ts';

/** A spreadsheet as it must be in the end, by what was asked for and taken. */
export interface Expectation {
  readonly id: string;
  readonly columns: readonly string[];
  /** By the name of the row, in order. */
  readonly rows: Map<Cell, readonly Cell[]>;
}

export interface FeedParts {
  readonly client: Client;
  readonly ledger: Ledger;
  readonly random: Random;
  readonly samples: readonly Sample[];
  log(line: string): void;
}

/** Several clients at once; requests for one spreadsheet always come from the same one, so that their order is known. */
const LANES = 4;
/** The rest between two requests of one client, in ms. */
const PACE_MS = 100;
const BURST = 20;

/** Makes requests from the samples, as clients of the front end do, and keeps what the spreadsheets must become. */
export class Feed {
  readonly expected: Expectation[] = [];
  readonly #parts: FeedParts;

  constructor(parts: FeedParts) {
    this.#parts = parts;
  }

  /** Until `signal` aborts. @throws Error  a request was refused, or not answered */
  async run(signal: AbortSignal): Promise<void> {
    const { samples } = this.#parts;
    const lanes = Array.from({ length: LANES }, (_, lane) => samples.filter((_sample, at) => at % LANES === lane));
    await Promise.all(lanes.map((lane) => this.#lane(lane, signal)));
  }

  async #lane(samples: readonly Sample[], signal: AbortSignal): Promise<void> {
    const { random } = this.#parts;
    const waiting = [...samples];
    const sheets: Expectation[] = [];
    for (let turn = 0; !signal.aborted; turn += 1) {
      const sample = turn % 3 === 0 ? waiting.shift() : undefined;
      const sheet = random.pick(sheets);
      if (sample !== undefined) sheets.push(await this.#create(sample));
      else if (sheet !== undefined) await this.#updates(sheet, random.next() < 0.02 ? BURST : 1);
      await sleep(PACE_MS * (0.5 + random.next()), undefined, { signal }).catch(() => {});
    }
  }

  async #create(sample: Sample): Promise<Expectation> {
    const { client, ledger, random } = this.#parts;
    const { id, columns, rows } = sample;
    const asCsv = random.next() < 0.5;
    const send = (): ReturnType<Client['create']> =>
      asCsv ? client.createFromCsv(id, toCsv([columns, ...rows])) : client.create(id, { columns, rows });
    const first = await send();
    if (first.duplicate) throw new Error(`the new spreadsheet "${id}" was taken for a duplicate`);
    ledger.add(first.job);
    // Clients repeat what they are not sure of. It must not become a second job.
    if (random.next() < 0.25) {
      const again = await send();
      if (!again.duplicate || again.job !== first.job) throw new Error(`"${id}" was created twice`);
    }
    const expected = { id, columns, rows: new Map(rows.map((row) => [row[0] ?? null, row])) };
    this.expected.push(expected);
    return expected;
  }

  async #updates(sheet: Expectation, count: number): Promise<void> {
    const begun = performance.now();
    for (let done = 0; done < count; done += 1) await this.#update(sheet);
    if (count > 1) this.#parts.log(`${count} updates of ${sheet.id} in ${Math.round(performance.now() - begun)} ms`);
  }

  async #update(sheet: Expectation): Promise<void> {
    const { client, ledger } = this.#parts;
    const change = this.#change(sheet);
    const { job } = await client.update(sheet.id, change);
    ledger.add(job);
    for (const name of change.remove) sheet.rows.delete(name);
    for (const row of change.rows) sheet.rows.set(row[0] ?? null, row);
  }

  /** Mostly new figures for rows that are there; now and then a new row, or one goes. */
  #change({ rows, columns }: Expectation): { rows: Cell[][]; remove: string[] } {
    const { random } = this.#parts;
    const names = [...rows.keys()].filter((name) => typeof name === 'string');
    const dice = random.next();
    const name = random.pick(names);
    if (name === undefined || dice < 0.1) {
      return {
        rows: [columns.map((_, at) => (at === 0 ? `New ${random.whole(1, 500)}` : random.whole(1, 9_999)))],
        remove: [],
      };
    }
    if (dice < 0.15 && names.length > 3) return { rows: [], remove: [name] };
    const changed = [...new Set([name, random.pick(names) ?? name])].map((one) =>
      (rows.get(one) ?? []).map((cell) =>
        typeof cell === 'number' ? Math.round(cell * (95 + random.next() * 10)) / 100 : cell,
      ),
    );
    return { rows: changed, remove: [] };
  }
}

/** Texts are quoted, numbers are not: what comes out of it again is what went in. */
function toCsv(lines: readonly (readonly Cell[])[]): string {
  const field = (cell: Cell): string =>
    typeof cell === 'string' ? `"${cell.replaceAll('"', '""')}"` : String(cell ?? '');
  return `${lines.map((line) => line.map(field).join(',')).join('\r\n')}\r\n`;
}
