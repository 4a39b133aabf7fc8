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
 * The account that runs the server, since Postgres refuses root; undefined if this process is not root: the server then runs as
 * the same user. If a user other than root owns the data folder, that user's account runs the server, so that the owner can use
 * the folder afterwards, too.
 * @throws NotSupported  this process is root, and the machine has no other account
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

/** The options with which `spawn` runs a program as `account`. */
export function identity(account: Account | undefined): { uid: number; gid: number } | Record<string, never> {
  return account === undefined ? {} : { uid: account.uid, gid: account.gid };
}

/** True if the account can enter the folder, parents included. The kernel answers this, because mode bits do not show ACLs. */
export async function canEnter(folder: string, account: Account | undefined): Promise<boolean> {
  try {
    await run('/bin/sh', ['-c', 'test -d "$0" && test -x "$0"', folder], { cwd: '/', ...identity(account) });
    return true;
  } catch {
    return false;
  }
}

/** Leaves root out, because Postgres never runs as root. */
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
