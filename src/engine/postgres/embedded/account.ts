import { execFile } from 'node:child_process';
import { readFile, stat } from 'node:fs/promises';
import { promisify } from 'node:util';
import { NotSupported } from '../../../base/errors.ts';

const run = promisify(execFile);

/** An account of the machine, as /etc/passwd has it. */
export interface Account {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

/** Tried in this order, then any account that is not root. */
const PREFERRED = ['postgres', '_postgres', 'nobody'];

/**
 * The account the server runs as, since Postgres refuses root; undefined when we are not root and it runs as ourselves.
 * A data folder that somebody else than root owns decides: its owner must be able to use it afterwards, too.
 * @throws NotSupported  when we are root and the machine has no other account
 */
export async function serverAccount(data?: string): Promise<Account | undefined> {
  if (process.geteuid?.() !== 0) return undefined;
  const accounts = parsePasswd(await readFile('/etc/passwd', 'utf8').catch(() => ''));
  const owner = data === undefined ? 0 : await ownerOf(data);
  const account =
    accounts.find((each) => each.uid === owner) ??
    PREFERRED.map((name) => accounts.find((each) => each.name === name)).find((each) => each !== undefined) ??
    accounts[0];
  if (account === undefined) {
    throw new NotSupported(
      'Postgres refuses to run as root and /etc/passwd names no other account; add one (useradd postgres), ' +
        'run as another user, or give the URL of a database',
    );
  }
  return account;
}

/** What `spawn` needs to run a program as `account`. */
export function identity(account: Account | undefined): { uid: number; gid: number } | Record<string, never> {
  return account === undefined ? {} : { uid: account.uid, gid: account.gid };
}

/** True when the account can enter the folder, parents included. Asked of the kernel: mode bits do not show ACLs. */
export async function canEnter(folder: string, account: Account | undefined): Promise<boolean> {
  try {
    await run('/bin/sh', ['-c', 'test -d "$0" && test -x "$0"', folder], { cwd: '/', ...identity(account) });
    return true;
  } catch {
    return false;
  }
}

/** Root is left out: the one account Postgres never runs as. */
function parsePasswd(text: string): Account[] {
  return text
    .split('\n')
    .map((line) => line.split(':'))
    .filter((field) => field.length >= 7)
    .map(([name = '', , uid, gid]) => ({ name, uid: unsigned(uid), gid: unsigned(gid) }))
    .filter((account) => account.uid > 0);
}

/** macOS writes the account `nobody` as -2. */
function unsigned(id: string | undefined): number {
  return Number(id) >>> 0;
}

async function ownerOf(folder: string): Promise<number> {
  return stat(folder).then(
    (found) => found.uid,
    () => 0,
  );
}
