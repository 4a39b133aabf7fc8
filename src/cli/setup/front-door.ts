import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { TokenOptions } from '../../http/index.ts';
import type { Cli } from './run.ts';

/**
 * The way in for the person who started a server. The address that the server prints has a token that was made for this
 * process. The source of a request proves nothing: behind a proxy, all requests come from this machine.
 */
export class FrontDoor {
  readonly #secret = randomBytes(24).toString('base64url');

  get token(): TokenOptions {
    return { name: 'the person who started it', token: this.#secret, role: 'admin', inUrl: true };
  }

  /** @param served  the address without the token */
  urlOf(served: string): string {
    return `${served}?token=${this.#secret}`;
  }
}

/** Shows an address in a browser, if this terminal has a screen; otherwise does nothing. Never rejects. */
export async function openBrowser(cli: Cli, url: string): Promise<void> {
  const opener =
    process.stdout.isTTY === true && cli.talk.isTerminal ? openerOf(process.platform, process.env) : undefined;
  if (opener === undefined) return;
  try {
    const file = await leadTo(cli, url);
    const [command, ...args] = opener;
    const child = spawn(command, [...args, file], { stdio: 'ignore', detached: true });
    child.once('error', () => {}); // no such program: the address is on the terminal
    child.unref();
  } catch (error) {
    cli.talk.warn(`no browser could be opened: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** The command that opens a browser; undefined: there is no browser, or no screen. */
export function openerOf(
  platform: NodeJS.Platform,
  env: Readonly<Record<string, string | undefined>>,
): readonly [string, ...string[]] | undefined {
  const isElsewhere = ['CI', 'SSH_CONNECTION', 'SSH_TTY'].some((name) => (env[name] ?? '') !== '');
  if (isElsewhere) return undefined;
  if (platform === 'darwin') return ['open'];
  if (platform === 'win32') return ['explorer.exe'];
  return (env['DISPLAY'] ?? env['WAYLAND_DISPLAY'] ?? '') === '' ? undefined : ['xdg-open'];
}

/** A page that only this user can read and that leads to the address: every user can read the arguments of a program. */
async function leadTo(cli: Cli, url: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'pawl-open-'));
  cli.atEnd(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, 'dashboard.html');
  const page = `<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=${url}">`;
  await writeFile(file, page, { mode: 0o600 });
  return pathToFileURL(file).href;
}
