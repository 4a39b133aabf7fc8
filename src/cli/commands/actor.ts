import type { Command } from 'commander';
import type { ActorAdmin, ActorExplanation, ActorRecord, ActorSummary } from '../../actor/index.ts';
import { NotFound } from '../../base/errors.ts';
import { suggest } from '../../base/options/options.ts';
import { EXIT, Failure, messageOf } from '../output/failure.ts';
import type { Field } from '../output/output.ts';
import { openActors, openAdmin } from '../setup/actor-config.ts';
import { addDynamoFlagsToAll } from '../setup/dynamo-table.ts';
import { wholeNumber } from '../setup/globals.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';
import { each } from './actor/each.ts';
import { addOperating, whereOf } from './actor/operate.ts';
import { addActorHistory } from './actor-history.ts';

/** `pawl actor list|show|explain|history|fields|work|incr|send|pause|resume|destroy|diagram`. */
export function addActor(program: Command): void {
  const actor = program.command('actor').description('show, wake, pause and destroy actors');
  examples(actor, ['pawl actor list --type server', 'pawl actor explain 42']);
  addLooking(actor);
  addChanging(actor);
  addDynamoFlagsToAll(actor, 'the actors are in this table');
}

interface ListFlags {
  readonly type?: string;
  readonly state?: string;
  readonly status?: ActorSummary['status'];
  readonly parent?: string;
  readonly where?: readonly string[];
  readonly final?: boolean;
  readonly before?: string;
  readonly limit: number;
}

function addLooking(actor: Command): void {
  const list = actor
    .command('list')
    .description('actors that are not final, newest first')
    .option('--type <type>', 'only of this type')
    .option('--state <state>', 'only in this state')
    .option('--status <status>', 'only running, due, napping, hibernating, "backing off", paused, held or final')
    .option('--parent <id>', 'only the children of this one')
    .option('--where <field=value...>', 'with --type: only those with these values of fields that the type indexes')
    .option('--final', 'include final ones')
    .option('--before <id>', 'only actors older than this one: the last of the page before')
    .option('--limit <n>', 'show at most this many', wholeNumber(1, 10_000), 100);
  examples(list, ['pawl actor list', 'pawl actor list --type order --where customer=c-7 vip=true -o json']);
  list.action((flags: ListFlags, self: Command) => run(self, (cli) => listActors(cli, flags)));
  const show = actor.command('show <id>').description('one actor: its state, what holds it, why it does not run');
  examples(show, ['pawl actor show 42', 'pawl actor show 42 -o json']);
  show.action((id: string, _options: object, self: Command) => run(self, (cli) => showActor(cli, id)));
  const why = actor.command('explain <id>').description('why an actor is not running, and what helps');
  examples(why, ['pawl actor explain 42', 'pawl actor explain 42 -o json']);
  why.action((id: string, _options: object, self: Command) => run(self, (cli) => explainActor(cli, id)));
  addActorHistory(actor);
  const diagram = actor
    .command('diagram <type>')
    .description('the machine of a type, with how many actors are in each state')
    .option('--svg', 'print SVG instead of Mermaid')
    .option('--no-counts', 'without the numbers of actors');
  examples(diagram, ['pawl actor diagram server', 'pawl actor diagram server --svg > server.svg']);
  diagram.action((type: string, flags: { svg?: boolean; counts: boolean }, self: Command) =>
    run(self, async (cli) => {
      const admin = await openAdmin(cli);
      const format = flags.svg === true ? 'svg' : 'mermaid';
      cli.out.text((await admin.diagram(type, { format, counts: flags.counts })).trimEnd());
    }),
  );
}

function addChanging(actor: Command): void {
  addOperating(actor);
  const work = actor
    .command('work <id>')
    .description('run one turn by hand, due or not, paused or not; needs a config file with the program');
  examples(work, ['pawl actor work 42', 'pawl actor work 42 --config pawl.config.mjs']);
  work.action((id: string, _options: object, self: Command) => run(self, (cli) => workOn(cli, id), { writes: true }));
  const incr = actor
    .command('incr <id> <semaphore>')
    .description('raise a semaphore of an actor, which wakes it')
    .option('--by <n>', 'so often', wholeNumber(1, 1_000_000), 1);
  examples(incr, ['pawl actor incr 42 restart', 'pawl actor incr 42 restart --by 3']);
  incr.action((id: string, semaphore: string, { by }: { by: number }, self: Command) =>
    run(
      self,
      (cli) =>
        each(cli, [id], 'raised', async (admin) => {
          if (!(await admin.incr(id, semaphore, { n: by })))
            throw new Failure(`actor ${id} is final`, { exit: EXIT.conflict });
        }),
      { writes: true },
    ),
  );
  for (const verb of ['pause', 'resume'] as const) {
    const does = verb === 'pause' ? 'let no turn of it begin; its inbox is kept' : 'let turns begin again';
    const command = actor
      .command(`${verb} [id...]`)
      .description(does)
      .option('--type <type>', 'all actors of this type')
      .option('--state <state>', 'with --type: only in this state');
    examples(command, [`pawl actor ${verb} 42`, `pawl actor ${verb} --type server --state booting`]);
    command.action((ids: string[], flags: { type?: string; state?: string }, self: Command) =>
      run(self, (cli) => pauseOrResume(cli, verb, ids, flags), { writes: true }),
    );
  }
  const destroy = actor.command('destroy <id...>').description('ask actors to end, whatever their state');
  examples(destroy, ['pawl actor destroy 42', 'pawl actor list --type server -q | xargs pawl actor destroy --yes']);
  destroy.action((ids: string[], _options: object, self: Command) =>
    run(self, (cli) => destroyAll(cli, ids), { writes: true }),
  );
}

const LIST: readonly Field<ActorSummary>[] = [
  { title: 'ID', of: (row) => row.id, align: 'right' },
  { title: 'TYPE', of: (row) => row.type },
  { title: 'STATE', of: (row) => row.state },
  { title: 'STATUS', of: (row) => row.status },
  { title: 'KEY', of: (row) => row.key },
  { title: 'PARENT', of: (row) => row.parent, align: 'right' },
  { title: 'ENTERED', of: (row) => row.enteredAt },
  { title: 'WAKES', of: (row) => row.wakeAt },
  { title: 'ERROR', of: (row) => row.error?.split('\n')[0] },
];

async function listActors(cli: Cli, flags: ListFlags): Promise<number> {
  const { type, state, status, parent, where, final, before, limit } = flags;
  const admin = await openAdmin(cli);
  const rows = await admin.list({ type, state, status, parent, where: whereOf(where), final, before, limit });
  if (rows.length === 0) await requireKnown(admin, type, state);
  cli.out.rows(rows, LIST, (row) => row.id);
  if (rows.length === limit) cli.talk.say(`there may be more: add --before ${rows.at(-1)?.id ?? ''}`);
  return EXIT.done;
}

/** An unknown type or state is an error, and not an empty list. @throws NotFound */
async function requireKnown(admin: ActorAdmin, type: string | undefined, state: string | undefined): Promise<void> {
  const types = (await admin.types()).filter(({ name }) => type === undefined || name === type);
  if (type !== undefined && types.length === 0) {
    throw notThere(
      'actor type',
      type,
      (await admin.types()).map(({ name }) => name),
    );
  }
  const states = types.flatMap(({ machine }) => Object.keys(machine.states));
  if (state !== undefined && types.length > 0 && !states.includes(state)) throw notThere('state', state, states);
}

function notThere(what: string, name: string, known: readonly string[]): NotFound {
  const near = suggest(name, known);
  return new NotFound(`there is no ${what} "${name}"${near === undefined ? '' : `; did you mean "${near}"?`}`);
}

interface Shown extends ActorRecord {
  readonly explanation: ActorExplanation;
}

const SHOW: readonly Field<Shown>[] = [
  { title: 'id', of: (row) => row.id },
  { title: 'type', of: (row) => row.type },
  { title: 'state', of: (row) => row.state },
  { title: 'status', of: (row) => row.status },
  { title: 'why', of: (row) => row.explanation.reasons.join('\n') },
  { title: 'key', of: (row) => row.key },
  { title: 'parent', of: (row) => row.parent },
  { title: 'open children', of: (row) => row.openChildren },
  { title: 'visit', of: (row) => row.visit },
  { title: 'attempt', of: (row) => row.attempt },
  { title: 'entered', of: (row) => row.enteredAt },
  { title: 'wakes', of: (row) => row.wakeAt },
  { title: 'deadline', of: (row) => row.deadlineAt },
  { title: 'semaphores', of: (row) => row.semaphores },
  { title: 'messages', of: (row) => row.messages },
  { title: 'error', of: (row) => row.error },
  { title: 'result', of: (row) => row.result },
  { title: 'fields', of: (row) => row.fields },
];

async function showActor(cli: Cli, id: string): Promise<number> {
  const admin = await openAdmin(cli);
  const [record, explanation] = [await admin.get(id), await admin.explain(id)];
  cli.out.one({ ...record, explanation }, SHOW, record.id);
  return EXIT.done;
}

async function explainActor(cli: Cli, id: string): Promise<number> {
  const explanation = await (await openAdmin(cli)).explain(id);
  const fields: readonly Field<ActorExplanation>[] = [
    { title: 'actor', of: (row) => `${row.type} ${row.id} is ${row.status} in "${row.state}"` },
    { title: 'because', of: (row) => row.reasons.join('\n') },
    { title: 'try', of: (row) => row.advice.join('\n') },
  ];
  cli.out.one(explanation, fields, id);
  return EXIT.done;
}

async function workOn(cli: Cli, id: string): Promise<number> {
  const actors = await openActors(cli);
  if (cli.globals.dryRun) {
    const { type, state } = await actors.get(id);
    cli.talk.say(`would run one turn of ${type} ${id} in "${state}"`);
    return EXIT.done;
  }
  const turn = await actors.work(id);
  if (turn === undefined) throw new Failure(`a turn of actor ${id} is running elsewhere`, { exit: EXIT.conflict });
  const { kind, from, to, error } = turn;
  const shown = { id, kind, from, to, error: error === undefined ? null : messageOf(error) };
  const fields = (['kind', 'from', 'to', 'error'] as const).map((title) => ({
    title,
    of: (row: typeof shown) => row[title],
  }));
  cli.out.one(shown, fields, id);
  return kind === 'failed' ? EXIT.failed : EXIT.done;
}

async function pauseOrResume(
  cli: Cli,
  verb: 'pause' | 'resume',
  ids: readonly string[],
  { type, state }: { type?: string; state?: string },
): Promise<number> {
  const done = verb === 'pause' ? 'paused' : 'resumed';
  if ((type === undefined) === (ids.length === 0) || (state !== undefined && type === undefined)) {
    throw new Failure(`pawl actor ${verb} takes ids, or --type and maybe --state`, { exit: EXIT.usage });
  }
  if (type === undefined) return each(cli, ids, done, (admin, id) => admin[verb](id));
  const name = state === undefined ? type : `${type}/${state}`;
  return each(cli, [name], done, async (admin) => admin[verb]({ type, state }));
}

async function destroyAll(cli: Cli, ids: readonly string[]): Promise<number> {
  if (!cli.globals.yes && !cli.globals.dryRun) {
    await cli.talk.confirm(ids.length === 1 ? `Destroy actor ${ids[0]}?` : `Destroy ${ids.length} actors?`, cli.signal);
  }
  return each(cli, ids, 'told to end', async (admin, id) => void (await admin.destroy(id)));
}
