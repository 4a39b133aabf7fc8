import type { Command } from 'commander';
import type { ActorAdmin } from '../../../actor/index.ts';
import { EXIT, Failure } from '../../output/failure.ts';
import { json } from '../../output/output.ts';
import { findActors, openAdmin } from '../../setup/actor-config.ts';
import { durationOption } from '../../setup/globals.ts';
import { examples } from '../../setup/help.ts';
import { type Cli, run } from '../../setup/run.ts';
import { each } from './each.ts';

/** `pawl actor retry|move|ask|send`. */
export function addOperating(actor: Command): void {
  const retry = actor
    .command('retry <id...>')
    .description('have the next turn begin now, wherever it runs: a back-off or a nap is over');
  examples(retry, ['pawl actor retry 42', 'pawl actor list --status "backing off" -q | xargs pawl actor retry']);
  retry.action((ids: string[], _options: object, self: Command) =>
    run(self, (cli) => each(cli, ids, 'due now', retryOne), { writes: true }),
  );
  const move = actor
    .command('move <id> <state>')
    .description('put an actor into another state, and change fields; a turn that runs meanwhile is fenced off')
    .requiredOption('--reason <text>', 'why, for its history')
    .option('--patch <json>', 'fields that change, as a JSON object; the others stay');
  examples(move, [
    `pawl actor move 42 paying --reason 'the bank is back'`,
    `pawl actor move 42 paying --reason 'card replaced' --patch '{"card":"new"}'`,
  ]);
  move.action((id: string, state: string, flags: MoveFlags, self: Command) =>
    run(self, (cli) => moveOne(cli, id, state, flags), { writes: true }),
  );
  const ask = actor
    .command('ask <id> <name> [payload]')
    .description('send a message and print what the actor answers; the payload is JSON')
    .addOption(durationOption('--wait <duration>', 'how long to wait for the answer', '30s'));
  examples(ask, ['pawl actor ask 42 status', `pawl actor ask 42 resize '{"size":4}' --wait 1m`]);
  ask.action((id: string, name: string, payload: string | undefined, { wait }: { wait: number }, self: Command) =>
    run(self, (cli) => askOne(cli, id, name, payload, wait), { writes: true }),
  );
  const send = actor
    .command('send <id> <name> [payload]')
    .description('send a message, which wakes the actor, and do not wait for an answer; the payload is JSON');
  examples(send, ['pawl actor send 42 refresh', `pawl actor send 42 resize '{"size":4}'`]);
  send.action((id: string, name: string, payload: string | undefined, _options: object, self: Command) =>
    run(self, (cli) => sendOne(cli, id, name, payload), { writes: true }),
  );
}

interface MoveFlags {
  readonly reason: string;
  readonly patch?: string;
}

async function retryOne(admin: ActorAdmin, id: string): Promise<void> {
  if (await admin.retry(id)) return;
  throw new Failure(`actor ${id} is not due: a turn of it runs, or it is final`, {
    exit: EXIT.conflict,
    next: `pawl actor explain ${id}`,
  });
}

/** Moves an actor. If the config file has its program, the program's schema checks the fields. */
async function moveOne(cli: Cli, id: string, state: string, { reason, patch }: MoveFlags): Promise<number> {
  const fields = patch === undefined ? undefined : readObject('--patch', patch);
  const program = await findActors(cli);
  return each(cli, [id], `in "${state}"`, (admin) => (program ?? admin).move(id, state, fields, { reason }));
}

async function askOne(cli: Cli, id: string, name: string, payload: string | undefined, wait: number): Promise<number> {
  const value = payload === undefined ? null : readJson('payload', payload);
  const admin = await openAdmin(cli);
  if (cli.globals.dryRun) {
    cli.talk.say(`would send "${name}" to actor ${id}`);
    return EXIT.done;
  }
  const answer = await admin.ask(id, name, value, { wait, signal: cli.signal });
  cli.out.text(json(answer, cli.out.format === 'table'));
  return EXIT.done;
}

function sendOne(cli: Cli, id: string, name: string, payload: string | undefined): Promise<number> {
  const value = payload === undefined ? null : readJson('payload', payload);
  return each(cli, [id], `sent "${name}"`, async (admin) => {
    if (!(await admin.send(id, name, value))) throw new Failure(`actor ${id} is final`, { exit: EXIT.conflict });
  });
}

/** Reads `field=value` for `list({ where })`: a number or a truth value as JSON, anything else as text. */
export function whereOf(
  given: readonly string[] | undefined,
): Readonly<Record<string, string | number | boolean>> | undefined {
  if (given === undefined) return undefined;
  return Object.fromEntries(
    given.map((pair) => {
      const [, name, value] = /^([^=]+)=(.*)$/s.exec(pair) ?? [];
      if (name === undefined || value === undefined) {
        throw new Failure(`--where takes field=value, but was "${pair}"`, { exit: EXIT.usage });
      }
      return [
        name,
        /^(true|false|-?(0|[1-9]\d*)(\.\d+)?)$/.test(value) ? (JSON.parse(value) as number | boolean) : value,
      ];
    }),
  );
}

function readJson(what: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Failure(`${what} must be JSON, such as '{"size":4}' or '"text"', but was ${text.slice(0, 100)}`, {
      exit: EXIT.usage,
    });
  }
}

function readObject(what: string, text: string): Readonly<Record<string, unknown>> {
  const value = readJson(what, text);
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value };
  throw new Failure(`${what} must be a JSON object, such as '{"card":"new"}'`, { exit: EXIT.usage });
}
