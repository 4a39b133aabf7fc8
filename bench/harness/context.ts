import { type Figure, figure, type Outcome } from './figures.ts';
import type { Server } from './server.ts';
import { Side, type SideName } from './side.ts';

/** What a bench gets to work with. */
export interface Context {
  readonly server: Server;
  /** Measure less, to end within 45 s. */
  readonly quick: boolean;
  /** How often each measurement is repeated. */
  readonly rounds: number;
  /** The size, for benches that have one; undefined unless the command line names it. */
  readonly size: number | undefined;
  /** Leave our own side out, to tune the peers. */
  readonly peersOnly: boolean;
  /** Reports progress to the person who runs the bench. */
  readonly say: (line: string) => void;
  /** Starts a process for a side; it ends with the bench. */
  readonly side: (name: SideName) => Side;
  /** Starts a side of the checkout that `--before` names; undefined without that option. */
  readonly sideBefore: ((name: SideName) => Side) | undefined;
}

export type Bench = (context: Context) => Promise<Outcome>;

/** Starts sides and remembers them, so that none outlives the bench. */
export class Sides implements AsyncDisposable {
  private readonly started: Side[] = [];

  start(name: SideName, of?: URL): Side {
    const side = new Side(name, of);
    this.started.push(side);
    return side;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.started.map((side) => side[Symbol.asyncDispose]()));
  }
}

/** One measurement. It runs once a round and returns one number for each name. */
export type Measure = () => Promise<Readonly<Record<string, number>>>;

/** The numbers of all rounds: `series.of('pawl', 'drain')`. */
export class Series {
  private readonly values: Map<string, number[]> = new Map();

  add(who: string, numbers: Readonly<Record<string, number>>): void {
    for (const [what, value] of Object.entries(numbers)) {
      const key = `${what}/${who}`;
      this.values.set(key, [...(this.values.get(key) ?? []), value]);
    }
  }

  /** One number per round; empty if `what` was not measured. */
  of(who: string, what: string): readonly number[] {
    return this.values.get(`${what}/${who}`) ?? [];
  }

  /** All figures, named `<what>/<who>`; `units` has the unit of each `what`. */
  figures(units: Readonly<Record<string, string>>): Record<string, Figure> {
    const entries = [...this.values].map(([key, samples]) => [
      key,
      figure(units[key.slice(0, key.indexOf('/'))] ?? '', samples),
    ]);
    return Object.fromEntries(entries);
  }
}

/**
 * Runs every measurement once a round. Each round starts with another measurement. So if the machine becomes slower or faster, this
 * affects all measurements equally, and none always follows the same one.
 */
export async function interleave(
  { say }: Context,
  rounds: number,
  title: string,
  measures: Readonly<Record<string, Measure>>,
): Promise<Series> {
  const all = Object.entries(measures);
  const series = new Series();
  for (let round = 0; round < rounds; round++) {
    for (const [who, measure] of [...all.slice(round % all.length), ...all.slice(0, round % all.length)]) {
      const numbers = await measure();
      series.add(who, numbers);
      const shown = Object.entries(numbers).map(([what, value]) => `${what} ${value.toFixed(value < 100 ? 2 : 0)}`);
      say(`${title} ${round + 1}/${rounds}: ${who} ${shown.join(', ')}`);
    }
  }
  return series;
}

/** Opens a side on a new database that has only the side's schema, runs `fn`, and drops the database. */
export async function inDatabase<T>(
  { server }: Context,
  side: Side,
  profile: string,
  fn: (url: string) => Promise<T>,
): Promise<T> {
  const prepare = async (url: string): Promise<void> => {
    await side.call('open', { url, profile });
    await side.call('close');
  };
  const run = async (url: string): Promise<T> => {
    await side.call('open', { url, profile });
    try {
      return await fn(url);
    } finally {
      await side.call('close');
    }
  };
  // Databases of one name have the same schema. pg-boss stores there how a queue is worked, and another checkout may have another schema.
  const name = `${side.name} ${side.of.href}${side.name === 'pg-boss' ? ` ${profile}` : ''}`;
  return server.withDatabase(run, { name, prepare });
}
