import { type Command, InvalidArgumentError } from 'commander';
import { LeaseLost, LockTimeout } from '../../base/errors.ts';
import { after } from '../../base/time/clock.ts';
import { formatDuration, parseDuration } from '../../base/time/duration.ts';
import type { Lock, Locks } from '../../lock/index.ts';
import { EXIT, Failure, messageOf } from '../output/failure.ts';
import { durationOption } from '../setup/globals.ts';
import { examples } from '../setup/help.ts';
import { addLockFlags, type LockFlags, lockCommand, openLocks } from '../setup/open-locks.ts';
import { type Cli, run } from '../setup/run.ts';
import { ChildCommand } from './child-command.ts';

/** How long the command waits before it says what it waits for. */
const SILENCE_MS = 1000;

interface Flags extends LockFlags {
  readonly wait: number;
  readonly lease: number;
  readonly shared: boolean;
  readonly killAfter: number;
}

/** `pawl lock run NAME -- CMD…`: runs a command while holding a lock, and gives its exit code. */
export function addLockRun(lock: Command): void {
  const command = addLockFlags(lock.command('run <name> <command...>'))
    .description('run a command under a lock; exits with its code, or with 5 when the lock is not granted in time')
    .addOption(
      durationOption('--wait <duration>', 'how long to wait for the lock; 0 does not wait', 'Infinity', waitArgument),
    )
    .addOption(
      durationOption(
        '--lease <duration>',
        'how long the lock stays held after this process dies',
        '30s',
        leaseArgument,
      ),
    )
    .option('--shared', 'hold it together with other shared holders', false)
    .addOption(
      durationOption(
        '--kill-after <duration>',
        'SIGKILL processes that continue after SIGTERM: a command that lost the lock, or children that an ended one left',
        '10s',
      ),
    );
  examples(command, [
    'pawl lock run nightly --wait 5s -- ./nightly.sh --all',
    'pawl lock run catalog --shared --lease 10s -- node export.mjs',
  ]);
  command.action((name: string, words: string[], flags: Flags, self: Command) =>
    run(self, (cli) => runUnder(cli, name, words, flags), { writes: true, endsBySignal: true }),
  );
}

async function runUnder(cli: Cli, name: string, words: readonly string[], flags: Flags): Promise<number> {
  if (words[0] === '') {
    throw new Failure('the command is an empty text; check that the variable after -- is set', { exit: EXIT.usage });
  }
  if (cli.globals.dryRun) {
    cli.talk.say(`would run ${words.join(' ')} under lock "${name}"`);
    return EXIT.done;
  }
  const lock = await obtain(cli, name, flags);
  cli.signal.throwIfAborted();
  const code = await follow(cli, lock, words, flags.killAfter);
  const lost = lock.signal.aborted ? lock.signal.reason : await release(cli, lock);
  if (lost === undefined) return code;
  // Whatever its exit code is, the command did not have the lock until its end.
  throw new Failure(`the command did not have the lock until its end: ${messageOf(lost)}`, {
    next: lockCommand(`history ${JSON.stringify(name)}`, flags),
  });
}

/** @throws Failure (conflict) if the lock is not granted in time, or the reason of the signal */
async function obtain(cli: Cli, name: string, flags: Flags): Promise<Lock> {
  const { wait, lease, shared } = flags;
  const locks = await openLocks(cli, flags);
  // Otherwise the command would wait for an unreachable database as for a held lock. This query fails instead, as in any
  // command.
  await locks.history({ name, limit: 1 });
  const cancel = after(SILENCE_MS, () => void tellWhy(cli, locks, name), { unref: true });
  try {
    const lock = await locks.acquire(name, { wait, lease, mode: shared ? 'shared' : 'exclusive', signal: cli.signal });
    // A person who breaks the lock wants the command to end now, not at the next renewal.
    locks.startListening();
    return lock;
  } catch (error) {
    if (!(error instanceof LockTimeout)) throw error;
    const next = lockCommand(`show ${JSON.stringify(name)}`, flags);
    throw new Failure(notHad(name, wait, error.holder), { exit: EXIT.conflict, next });
  } finally {
    cancel();
  }
}

/** The message of the error itself is for programs: it names calls of the library. */
function notHad(name: string, waitMs: number, holder: string | undefined): string {
  const by = holder === undefined ? '' : ` by ${holder}`;
  const what = `lock ${JSON.stringify(name)}`;
  if (waitMs === 0) return `${what} is held${by}, and --wait 0 does not wait; give a longer --wait`;
  return `${what} was still held${by} after ${formatDuration(waitMs)}; give a longer --wait`;
}

/** Says what the command waits for, because otherwise it seems to hang. */
async function tellWhy({ talk }: Cli, locks: Locks, name: string): Promise<void> {
  const [holder] = (await locks.explain(name).catch(() => undefined))?.holders ?? [];
  if (holder !== undefined) talk.say(`waiting for lock "${name}", held by ${holder.host} (pid ${holder.pid})`);
}

/** Runs the command to its end. A signal to us is passed on to it, and if the lock is lost, the command is ended. */
async function follow(cli: Cli, lock: Lock, words: readonly string[], killAfterMs: number): Promise<number> {
  const charge = new ChildCommand(
    words,
    { PAWL_LOCK_NAME: lock.name, PAWL_LOCK_TOKEN: String(lock.token) },
    killAfterMs,
  );
  const onLost = (): void => {
    cli.talk.warn(`the command is ended: ${messageOf(lock.signal.reason)}`);
    charge.end();
  };
  const onSignal = (): void => charge.passOn(cli.signal.reason);
  lock.signal.addEventListener('abort', onLost, { once: true });
  cli.signal.addEventListener('abort', onSignal, { once: true });
  if (lock.signal.aborted) onLost();
  try {
    return await charge.ended;
  } finally {
    lock.signal.removeEventListener('abort', onLost);
    cli.signal.removeEventListener('abort', onSignal);
  }
}

/** @returns the error, if the lock was lost */
async function release(cli: Cli, lock: Lock): Promise<LeaseLost | undefined> {
  try {
    await lock.release();
  } catch (error) {
    if (error instanceof LeaseLost) return error;
    // The command is done, and its code is what counts.
    cli.talk.warn(messageOf(error));
  }
  return undefined;
}

function waitArgument(value: string): number {
  return lengthArgument(value, 0);
}

function leaseArgument(value: string): number {
  return lengthArgument(value, 100);
}

function lengthArgument(value: string, min: number): number {
  try {
    return parseDuration(/^\d+$/.test(value) ? Number(value) : value, { field: 'it', min, infinite: true });
  } catch (error) {
    throw new InvalidArgumentError(messageOf(error));
  }
}
