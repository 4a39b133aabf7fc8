import type { Command } from 'commander';
import type { Explanation, Holder, Locks, PastHolder, Waiter } from '../../lock/index.ts';
import { addLockRun } from '../lock-run/lock-run.ts';
import { EXIT, Failure } from '../output/failure.ts';
import type { Field } from '../output/output.ts';
import { wholeNumber } from '../setup/globals.ts';
import { examples } from '../setup/help.ts';
import { addLockFlags, type LockFlags, lockCommand, openLocks } from '../setup/open-locks.ts';
import { type Cli, run } from '../setup/run.ts';

/** `pawl lock list|show|break|history|run`. */
export function addLock(program: Command): void {
  const lock = program.command('lock').description('show and break locks, run commands under them');
  examples(lock, ['pawl lock list', 'pawl lock run nightly --wait 5s -- ./nightly.sh']);
  const add = (usage: string, text: string, shown: readonly string[]): Command => {
    const command = lock.command(usage).description(text);
    return examples(addLockFlags(command), shown);
  };
  add('list', 'locks that are held, and their waiters', [
    'pawl lock list',
    'pawl lock list --namespace shop -q',
    'pawl lock list --dynamodb locks',
  ]).action((flags: LockFlags, self: Command) => run(self, (cli) => list(cli, flags)));
  add('show <name>', 'one lock: who holds it, who waits in which order, and why', [
    'pawl lock show invoice:42',
    'pawl lock show invoice:42 -o json',
  ]).action((name: string, flags: LockFlags, self: Command) => run(self, (cli) => show(cli, name, flags)));
  add('break <name>', 'take a lock away from its holders; they are notified, but may still be at work', [
    'pawl lock break nightly --reason "the machine is gone"',
    'pawl lock break nightly --reason "the machine is gone" --yes',
  ])
    .requiredOption('--reason <text>', 'stored in the history, and shown to the holders')
    .action((name: string, flags: LockFlags & { reason: string }, self: Command) =>
      run(self, (cli) => breakLock(cli, name, flags), { writes: true }),
    );
  add('history [name]', 'past holders, and how each hold ended, newest first', [
    'pawl lock history',
    'pawl lock history invoice:42 --limit 100 -o jsonl',
  ])
    .option('--limit <n>', 'how many', wholeNumber(1, 10_000), 20)
    .action((name: string | undefined, flags: LockFlags & { limit: number }, self: Command) =>
      run(self, (cli) => history(cli, name, flags)),
    );
  addLockRun(lock);
}

type LockEntry = (Holder & { readonly state: 'held' }) | (Waiter & { readonly state: 'waiting' });

const mode = ({ mode: kind, permits }: { mode: string; permits: number | null }): string =>
  permits === null ? kind : `${kind} of ${permits}`;

const STANDINGS: readonly Field<LockEntry>[] = [
  { title: 'NAME', of: (row) => row.name },
  { title: 'STATE', of: (row) => row.state },
  { title: 'MODE', of: mode },
  { title: 'TOKEN', of: (row) => (row.state === 'held' ? String(row.token) : null), align: 'right' },
  { title: 'HOST', of: (row) => row.host },
  { title: 'PID', of: (row) => String(row.pid), align: 'right' },
  { title: 'JOB', of: (row) => row.job, align: 'right' },
  { title: 'SINCE', of: (row) => row.since },
  { title: 'LEASE UNTIL', of: (row) => (row.state === 'held' ? row.expiresAt : null) },
];

async function list(cli: Cli, flags: LockFlags): Promise<number> {
  const { namespace } = flags;
  const { held, waiting } = await (await openLocks(cli, flags)).query();
  const standings = [
    ...held.map((each) => ({ ...each, state: 'held' as const })),
    ...waiting.map((each) => ({ ...each, state: 'waiting' as const })),
  ].toSorted((a, b) => (a.name < b.name ? -1 : Number(a.name > b.name)));
  cli.out.rows(standings, STANDINGS, (row) => row.name);
  if (standings.length === 0) {
    const where =
      namespace === '' ? 'outside of namespaces; --namespace looks into one' : `in namespace "${namespace}"`;
    cli.talk.say(`nothing is held or waited for ${where}`);
  }
  return EXIT.done;
}

const HOLDERS: readonly Field<Holder>[] = [
  { title: 'TOKEN', of: (row) => String(row.token), align: 'right' },
  { title: 'MODE', of: mode },
  { title: 'HOST', of: (row) => row.host },
  { title: 'PID', of: (row) => String(row.pid), align: 'right' },
  { title: 'JOB', of: (row) => row.job, align: 'right' },
  { title: 'SINCE', of: (row) => row.since },
  { title: 'LAST HEARTBEAT', of: (row) => row.lastHeartbeatAt },
  { title: 'LEASE UNTIL', of: (row) => row.expiresAt },
];

const WAITERS: readonly Field<Waiter>[] = [
  { title: 'PLACE', of: (row) => String(row.ticket), align: 'right' },
  { title: 'MODE', of: mode },
  { title: 'HOST', of: (row) => row.host },
  { title: 'PID', of: (row) => String(row.pid), align: 'right' },
  { title: 'JOB', of: (row) => row.job, align: 'right' },
  { title: 'WAITS SINCE', of: (row) => row.since },
];

const SUMMARY: readonly Field<Explanation>[] = [
  { title: 'name', of: (lock) => lock.name },
  { title: 'state', of: (lock) => (lock.holders.length > 0 ? 'held' : 'free') },
  { title: 'holders', of: (lock) => String(lock.holders.length) },
  { title: 'waiters', of: (lock) => String(lock.waiters.length) },
  { title: 'guarded by', of: (lock) => lock.guardedBy.map((pid) => `backend ${pid}`).join(', ') || null },
  { title: 'because', of: (lock) => lock.blocking.join('\n') || null },
  { title: 'circles', of: (lock) => lock.cycles.map((cycle) => cycle.join(' → ')).join('\n') || null },
];

const BACKENDS: readonly Field<Explanation['backends'][number]>[] = [
  { title: 'BACKEND', of: (row) => String(row.pid), align: 'right' },
  { title: 'WAITS FOR', of: (row) => row.blockedBy.join(', ') },
  { title: 'APPLICATION', of: (row) => row.applicationName },
  { title: 'QUERY', of: (row) => row.query },
];

async function show(cli: Cli, name: string, flags: LockFlags): Promise<number> {
  const { out } = cli;
  const lock = await (await openLocks(cli, flags)).explain(name);
  out.one(lock, SUMMARY, name);
  if (out.format !== 'table' || cli.globals.quiet) return EXIT.done;
  const part = <T>(title: string, rows: readonly T[], fields: readonly Field<T>[]): void => {
    if (rows.length === 0) return;
    out.heading(title);
    out.rows(rows, fields, () => name);
  };
  part('holders', lock.holders, HOLDERS);
  part('waiters, in order', lock.waiters, WAITERS);
  part('backends that wait for others in this database', lock.backends, BACKENDS);
  return EXIT.done;
}

async function breakLock(cli: Cli, name: string, flags: LockFlags & { reason: string }): Promise<number> {
  const locks = await openLocks(cli, flags);
  const { holders } = await locks.explain(name);
  if (holders.length === 0) throw notHeld(name, flags);
  const owners = holders.map(({ host, pid, token }) => `${host} (pid ${pid}, token ${token})`).join(', ');
  if (cli.globals.dryRun) {
    cli.talk.say(`lock "${name}" would be taken away from ${owners}`);
    return EXIT.done;
  }
  if (!cli.globals.yes) await cli.talk.confirm(`Take lock "${name}" away from ${owners}?`, cli.signal);
  return take(cli, locks, name, flags);
}

async function take(cli: Cli, locks: Locks, name: string, flags: LockFlags & { reason: string }): Promise<number> {
  const broken = await locks.break(name, { reason: flags.reason });
  // The lock was released while the person read the question.
  if (broken.length === 0) throw notHeld(name, flags);
  const fields: readonly Field<(typeof broken)[number]>[] = [
    { title: 'TOKEN', of: (row) => String(row.token), align: 'right' },
    { title: 'HOST', of: (row) => row.host },
    { title: 'PID', of: (row) => String(row.pid), align: 'right' },
    { title: 'SINCE', of: (row) => row.since },
  ];
  cli.out.rows(broken, fields, (row) => String(row.token));
  cli.talk.say(
    `lock "${name}" is broken; its holders are notified, but their work continues until they check the signal`,
  );
  return EXIT.done;
}

function notHeld(name: string, flags: LockFlags): Failure {
  return new Failure(`no process holds lock "${name}"`, { exit: EXIT.notFound, next: lockCommand('list', flags) });
}

const HISTORY: readonly Field<PastHolder>[] = [
  { title: 'NAME', of: (row) => row.name },
  { title: 'TOKEN', of: (row) => String(row.token), align: 'right' },
  { title: 'MODE', of: mode },
  { title: 'HOST', of: (row) => row.host },
  { title: 'PID', of: (row) => String(row.pid), align: 'right' },
  { title: 'JOB', of: (row) => row.job, align: 'right' },
  { title: 'GRANTED', of: (row) => row.grantedAt },
  { title: 'ENDED', of: (row) => row.endedAt },
  { title: 'OUTCOME', of: (row) => row.outcome },
  { title: 'REASON', of: (row) => row.reason },
];

async function history(cli: Cli, name: string | undefined, flags: LockFlags & { limit: number }): Promise<number> {
  const locks = await openLocks(cli, flags);
  const past = await locks.history({ limit: flags.limit, ...(name === undefined ? {} : { name }) });
  cli.out.rows(past, HISTORY, (row) => String(row.token));
  return EXIT.done;
}
