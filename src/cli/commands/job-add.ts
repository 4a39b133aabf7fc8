import { readFile } from 'node:fs/promises';
import { buffer } from 'node:stream/consumers';
import { type Command, InvalidArgumentError } from 'commander';
import { show } from '../../base/options/refusal.ts';
import { requireJson } from '../../base/storable.ts';
import type { HandOptions, QueueRecord } from '../../queue/index.ts';
import { EXIT, Failure } from '../output/failure.ts';
import { readTime } from '../output/moment.ts';
import { wholeNumber } from '../setup/globals.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';

interface AddFlags {
  readonly key?: string;
  readonly group?: string;
  readonly priority?: number;
  readonly runAt?: Date;
  readonly expiresAt?: Date;
  readonly attempts?: number;
  readonly onError?: string;
  readonly tag?: readonly string[];
  readonly after?: readonly string[];
  readonly unique?: boolean;
  readonly uniqueBy?: readonly string[];
  readonly uniqueWhile?: string;
  readonly uniquePer?: string;
  readonly uniqueReplace?: boolean;
  readonly file?: string;
}

/** `pawl job add QUEUE KIND [PAYLOAD]`. */
export function addJobAdd(job: Command): void {
  const command = job
    .command('add <queue> <kind> [payload]')
    .description('add a job; the payload is JSON, "-" reads it from stdin')
    .option('--key <key>', 'jobs of one key run one after another')
    .option('--group <group>', 'the queue declares how many jobs of one group run at a time')
    .option('--priority <n>', 'lower runs first', wholeNumber(-32_768, 32_767))
    .option('--run-at <time>', 'the earliest time: ISO 8601, or a delay such as 10m', timeArgument)
    .option('--expires-at <time>', 'cancel it unless it has begun by then: ISO 8601, or 10m from now', timeArgument)
    .option('--attempts <n>', 'in place of those of its kind', wholeNumber(1, 1000))
    .option('--on-error <kind>', 'the kind of its dead letter, in place of that of its kind')
    .option('--tag <tag...>', 'words to find it by')
    .option('--after <id...>', 'jobs that have to end before')
    .option('--unique', 'only unless there is one of its key already, for ever')
    .option('--no-unique', 'in any case, whatever its kind declares')
    .option(
      '--unique-by <what...>',
      'which jobs are the same: key (default), payload, or paths into the payload such as user.id',
    )
    .option('--unique-while <when>', 'for how long: outstanding (default), waiting or ever')
    .option('--unique-per <time>', 'no longer than this after the enqueue of the one that is there')
    .option('--unique-replace', 'with --unique-while waiting: the one that waits gets this payload')
    .option('--file <file>', 'read the payload from a file');
  examples(command, [
    `pawl job add emails send '{"to":"ada@example.org"}' --key ada`,
    'pawl job add reports build --file report.json --run-at 10m',
  ]);
  command.action((queue: string, kind: string, payload: string | undefined, flags: AddFlags, self: Command) =>
    run(self, (cli) => add(cli, { queue, kind, payload, flags }), { writes: true, queue }),
  );
}

interface AddRequest {
  readonly queue: string;
  readonly kind: string;
  readonly payload: string | undefined;
  readonly flags: AddFlags;
}

async function add(cli: Cli, { queue, kind, payload, flags }: AddRequest): Promise<number> {
  const value = await readPayload(payload, flags.file);
  const unique = readUnique(flags);
  const admin = await cli.admin();
  if (cli.globals.dryRun) {
    await admin.stats(queue);
    requireKind(await admin.list(), queue, kind);
    cli.talk.say(`would add a job "${kind}" to queue "${queue}"`);
    return EXIT.done;
  }
  const { key, group, priority, runAt, expiresAt, attempts, onError, tag: tags, after, uniqueReplace } = flags;
  const given = { key, group, priority, runAt, expiresAt, attempts, onError, tags, after };
  const added = await admin.enqueue(queue, kind, value, { ...given, ...(unique !== undefined && { unique }) });
  if (added.duplicate) {
    const became = uniqueReplace ? 'waits already; it has this payload now' : 'exists already; nothing was added';
    cli.talk.say(`job ${added.id} is the same and ${became}`);
  }
  const fields = [
    { title: 'id', of: (row: typeof added) => row.id },
    { title: 'status', of: (row: typeof added) => row.status },
    { title: 'duplicate', of: (row: typeof added) => row.duplicate },
  ];
  cli.out.one(added, fields, added.id);
  return EXIT.done;
}

/** The uniqueness that the flags say; undefined: as its kind declares. The library checks the words. @throws Failure */
function readUnique(flags: AddFlags): HandOptions['unique'] {
  const { unique, uniqueBy, uniqueWhile, uniquePer, uniqueReplace: replace } = flags;
  if ([uniqueBy, uniqueWhile, uniquePer, replace].every((flag) => flag === undefined)) return unique;
  if (unique !== undefined) {
    throw new Failure(`--${unique ? '' : 'no-'}unique was given together with a rule`, {
      exit: EXIT.usage,
      next: 'leave it out: the other --unique flags say it all',
    });
  }
  const [only, ...more] = uniqueBy ?? ['key'];
  const by = more.length === 0 && (only === 'key' || only === 'payload') ? only : uniqueBy;
  return { by, while: uniqueWhile, per: uniquePer, replace } as HandOptions['unique'];
}

function requireKind(queues: readonly QueueRecord[], queue: string, kind: string): void {
  const kinds = queues.find(({ name }) => name === queue)?.kinds ?? [];
  if (kinds.includes(kind)) return;
  throw new Failure(`queue "${queue}" has no kind "${kind}"`, { exit: EXIT.usage, next: `it has ${kinds.join(', ')}` });
}

/** The payload of a command line, checked; null if there is none. @throws Failure */
export async function readPayload(given: string | undefined, file: string | undefined): Promise<unknown> {
  if (given !== undefined && file !== undefined) {
    throw new Failure('the payload was given twice: as an argument and with --file', {
      exit: EXIT.usage,
      next: 'leave one of them out',
    });
  }
  const text = file !== undefined || given === '-' ? await readText(file) : given;
  if (text === undefined) return null;
  const payload = parse(text, file ?? (given === '-' ? 'stdin' : undefined));
  requireJson(payload, 'the payload', 'payload');
  return payload;
}

/** @param from  the source of the text; undefined: the command line */
function parse(text: string, from: string | undefined): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw from === undefined
      ? new Failure(`the payload is no JSON, but ${show(text)}: ${why}`, {
          exit: EXIT.usage,
          next: `put it in single quotes: '{"to":"ada"}'; a plain text is '"text"'`,
        })
      : new Failure(`${from} is no JSON: ${why}`, { exit: EXIT.usage, next: `correct ${from}` });
  }
}

/** Reads stdin as a stream: a program may write it slowly, and a signal or `--timeout` must still end the command. */
async function readText(file: string | undefined): Promise<string> {
  try {
    const bytes = file === undefined ? await buffer(process.stdin) : await readFile(file);
    // Bytes of another encoding would be stored as other letters.
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Failure(`${file ?? 'stdin'} cannot be read: ${why}`, {
      exit: EXIT.usage,
      next: 'check the name of the file',
    });
  }
}

/** Reads a time of the command line. @throws InvalidArgumentError */
export function timeArgument(value: string): Date {
  const at = readTime(value);
  if (at === undefined)
    throw new InvalidArgumentError('It must be a time such as 2026-12-24T18:00:00Z, or a delay such as 10m.');
  return at;
}
