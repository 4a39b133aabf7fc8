import type { Command } from 'commander';
import type { ActorTransition, FieldChange } from '../../actor/index.ts';
import { EXIT } from '../output/failure.ts';
import type { Field } from '../output/output.ts';
import { openAdmin } from '../setup/actor-config.ts';
import { wholeNumber } from '../setup/globals.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';

interface HistoryFlags {
  readonly before?: number;
  readonly limit: number;
}

/** `pawl actor history|fields`. */
export function addActorHistory(actor: Command): void {
  const history = actor
    .command('history <id>')
    .description('transitions and failures of an actor, oldest first')
    .option('--before <epoch>', 'only older ones: the epoch of the first of the page before', wholeNumber(0, 1e15))
    .option('--limit <n>', 'show at most this many: the last ones', wholeNumber(1, 10_000), 1000);
  examples(history, ['pawl actor history 42', 'pawl actor history 42 --limit 20']);
  history.action((id: string, flags: HistoryFlags, self: Command) => run(self, (cli) => showHistory(cli, id, flags)));
  const changes = actor
    .command('fields <id>')
    .description('what turns of an actor changed in its fields, newest first, where its type declares fieldHistory')
    .option('--before <epoch>', 'only older ones: the epoch of the last of the page before', wholeNumber(0, 1e15))
    .option('--limit <n>', 'show at most this many', wholeNumber(1, 10_000), 20);
  examples(changes, ['pawl actor fields 42', 'pawl actor fields 42 --limit 1 -o json']);
  changes.action((id: string, flags: HistoryFlags, self: Command) => run(self, (cli) => showFields(cli, id, flags)));
}

const HISTORY: readonly Field<ActorTransition>[] = [
  { title: 'AT', of: (move) => move.at },
  { title: 'FROM', of: (move) => move.from },
  { title: 'TO', of: (move) => move.to },
  { title: 'REASON', of: (move) => move.reason },
  { title: 'ATTEMPT', of: (move) => move.attempt, align: 'right' },
  { title: 'ERROR', of: (move) => move.error?.split('\n')[0] },
];

async function showHistory(cli: Cli, id: string, { before, limit }: HistoryFlags): Promise<number> {
  const admin = await openAdmin(cli);
  const moves = await admin.history(id, { before, limit });
  cli.out.rows(moves, HISTORY, (move) => move.to);
  const [first] = moves;
  if (first !== undefined && moves.length === limit) cli.talk.say(`there may be more: add --before ${first.epoch}`);
  return EXIT.done;
}

const CHANGES: readonly Field<FieldChange>[] = [
  { title: 'AT', of: (turn) => turn.at },
  { title: 'EPOCH', of: (turn) => turn.epoch, align: 'right' },
  { title: 'STATE', of: (turn) => turn.state },
  { title: 'CHANGED', of: ({ before, after }) => changedFields(before, after).join('\n'), wraps: true },
];

async function showFields(cli: Cli, id: string, { before, limit }: HistoryFlags): Promise<number> {
  const changes = await (await openAdmin(cli)).fieldHistory(id, { before, limit });
  cli.out.rows(changes, CHANGES, (turn) => String(turn.epoch));
  if (changes.length === 0)
    cli.talk.say('nothing is kept: no turn changed a field, or its type declares no fieldHistory');
  if (changes.length === limit) cli.talk.say(`there may be more: add --before ${changes.at(-1)?.epoch ?? ''}`);
  return EXIT.done;
}

/** `name: 1 → 2`, for each field that has changed. */
function changedFields(before: unknown, after: unknown): string[] {
  const [old, next] = [before, after].map((fields) => new Map(Object.entries(fields ?? {})));
  const text = (value: unknown): string => (value === undefined ? 'none' : JSON.stringify(value));
  return [...new Set([...(old?.keys() ?? []), ...(next?.keys() ?? [])])]
    .map((name) => [name, text(old?.get(name)), text(next?.get(name))] as const)
    .filter(([, was, is]) => was !== is)
    .map(([name, was, is]) => `${name}: ${was} → ${is}`);
}
