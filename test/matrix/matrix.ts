import pg from 'pg';
import { makePatient } from '../queue/interleaving.ts';
import { freshDatabase } from '../support/database.ts';
import { LONG, MODELS } from '../support/long.ts';
import type { Move } from './move.ts';
import { ENDINGS, type Ending, Pair } from './pair.ts';
import { WaitingTable, WHOSE, type Whose } from './table.ts';

/** A capability, as the matrix sees it. */
export interface Ground<Side> {
  /** The section of docs/waiting.md. */
  readonly part: string;
  readonly moves: readonly Move<Side>[];
  /** Makes what the moves are about, for two clients. Called more than once on a connection: each time for other two. */
  readonly set: (client: pg.Client) => Promise<{ readonly a: Side; readonly b: Side }>;
  /** @returns every breach of what must hold, in words */
  readonly breaches: (pair: Pair) => Promise<string[]>;
}

/**
 * Meets each move that was left open with every other one; in the usual run, with some. A pair that is left out counts as documented.
 * @returns the pairs that waited, and those that the documents name
 */
export async function whoWaits<Side>({
  part,
  moves,
  set,
}: Ground<Side>): Promise<[found: string[], documented: string[]]> {
  const documented = WaitingTable.read(part);
  const found = new WaitingTable();
  const brief = new Map<string, readonly [first: Move<Side>, second: Move<Side>, whose: Whose]>();
  const met = { waiting: 0, quiet: 0 };
  await withPair(async (pair, stage) => {
    const { a, b } = await set(stage);
    await makePatient(stage);
    for (const first of moves) {
      await pair.begin(first, a);
      for (const second of moves) {
        for (const whose of WHOSE) {
          const expected = documented.expect(first.name, second.name, whose);
          const turn = expected === 'no' ? (met.quiet += 1) % EVERY_QUIET : (met.waiting += 1) % EVERY_WAITING;
          if (turn !== 0) {
            found.note(first.name, second.name, whose, expected);
            continue;
          }
          const isBrief = expected === 'for a moment';
          const side = whose === 'the same' ? a : b;
          const waited = await told(first, second, () => pair.meet(second, side));
          if (isBrief && !brief.has(second.name)) brief.set(second.name, [first, second, whose]);
          found.note(first.name, second.name, whose, isBrief && waited === 'yes' ? expected : waited);
        }
      }
      await pair.undo();
    }
  });
  await endByThemselves(set, brief.values());
  return [found.lines, documented.lines];
}

/** How long a move waits by itself depends on the move alone: one meeting of each shows that it ends. */
async function endByThemselves<Side>(
  set: Ground<Side>['set'],
  meetings: Iterable<readonly [first: Move<Side>, second: Move<Side>, whose: Whose]>,
): Promise<void> {
  await withPair(async (pair, stage) => {
    const { a, b } = await set(stage);
    for (const [first, second, whose] of meetings) {
      await pair.begin(first, a);
      await told(first, second, () => pair.outlast(second, whose === 'the same' ? a : b));
      await pair.undo();
    }
  });
}

/** Plays pairs to their end: all in a long run, otherwise some of those that wait, and far fewer of the others. @returns breaches, in words */
export async function playOut<Side>({ part, moves, set, breaches }: Ground<Side>): Promise<string[]> {
  const documented = WaitingTable.read(part);
  const pairs = moves.flatMap((first) =>
    moves.flatMap((second) => WHOSE.map((whose) => [first, second, whose] as const)),
  );
  const isWaiting = ([first, second, whose]: (typeof pairs)[number]): boolean =>
    documented.expect(first.name, second.name, whose) !== 'no';
  const waiting = pairs.filter(isWaiting).filter((_one, index) => index % EVERY_PLAYED.waiting === 0);
  const others = pairs.filter((one) => !isWaiting(one)).filter((_one, index) => index % EVERY_PLAYED.quiet === 0);
  const found: string[] = [];
  const scenes = [...waiting, ...others].flatMap((one, index) =>
    endings(index, one[0]).map((ending) => [...one, ending] as const),
  );
  for (let from = 0; from < scenes.length && found.length <= 20; from += IN_ONE_DATABASE) {
    await withPair(async (pair, stage) => {
      for (const [first, second, whose, ending] of scenes.slice(from, from + IN_ONE_DATABASE)) {
        const { a, b } = await set(stage);
        const sides = [a, whose === 'the same' ? a : b] as const;
        await told(first, second, () => pair.play([first, second], sides, ending));
        for (const breach of await breaches(pair)) found.push(`${nameOf(first, second, whose)}; ${ending}: ${breach}`);
      }
    });
  }
  return found;
}

/** Breaches are looked for in all of a database, and each scene leaves something in it. */
const IN_ONE_DATABASE = 40;

/** For thousands of pairs, one after the other: half a minute of the processor, and far more where others want it, too. */
export const PATIENT: { readonly timeout: number } = { timeout: LONG ? 900_000 : 600_000 };

/** Of the pairs that wait, and of those that do not, one in so many meets. */
const EVERY_WAITING = MODELS ? 1 : 5;
const EVERY_QUIET = MODELS ? 1 : 29;
/** One in so many is played out. */
const EVERY_PLAYED = { waiting: LONG ? 1 : MODELS ? 7 : 29, quiet: LONG ? 1 : MODELS ? 151 : 601 };

/** All ways to end in a long run, in turns otherwise. */
function endings<Side>(index: number, { isHalf = false }: Move<Side>): readonly Ending[] {
  const all = ENDINGS.filter((ending) => ending !== 'commit' || !isHalf);
  return LONG ? all : all.slice(index % all.length).slice(0, 1);
}

async function told<T, Side>(first: Move<Side>, second: Move<Side>, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    throw new Error(`"${second.name}", while "${first.name}" was open, failed`, { cause: error });
  }
}

function nameOf<Side>(first: Move<Side>, second: Move<Side>, whose: Whose): string {
  return `${first.name} → ${second.name}, ${whose}`;
}

/** Stages are set on one connection: the server parses and plans the functions of the schema anew on each. */
async function withPair(run: (pair: Pair, stage: pg.Client) => Promise<void>): Promise<void> {
  const database = await freshDatabase();
  const pair = await Pair.open(database.url);
  const stage = new pg.Client({ connectionString: database.url });
  try {
    await stage.connect();
    await run(pair, stage);
  } finally {
    await Promise.all([pair.close(), stage.end()]);
    await database.drop();
  }
}
