import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type IncomingHttpHeaders, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from './eventually.ts';

/** Where Debian and others put it, which is in no user's PATH. Undefined: it is not here. */
export const NGINX: string | undefined = ['/usr/sbin/nginx', '/usr/local/sbin/nginx', '/opt/homebrew/bin/nginx'].find(
  (path) => existsSync(path),
);

export interface ProxyAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

export interface Nginx {
  /** Asks through nginx. `until`: how much of the body is waited for; undefined: all of it. */
  readonly ask: (path: string, asked?: ProxiedRequest) => Promise<ProxyAnswer>;
  readonly stop: () => Promise<void>;
}

interface ProxiedRequest {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly isEnough?: (text: string) => boolean;
}

/** A real nginx in front of this URL, with its defaults and these lines in addition to `proxy_pass`. It listens on a socket in a folder of its own. */
export async function startNginx(url: string, more = ''): Promise<Nginx> {
  const folder = await mkdtemp(join(tmpdir(), 'pawl-nginx-'));
  const socket = join(folder, 'socket');
  await writeFile(join(folder, 'nginx.conf'), configOf(folder, socket, url, more));
  const child = spawn(NGINX ?? 'nginx', ['-p', folder, '-c', join(folder, 'nginx.conf')], { stdio: 'ignore' });
  // The file is there a moment before anything listens on it.
  await until('nginx listens', () =>
    ask(socket, '/').then(
      () => true,
      () => false,
    ),
  );
  return {
    ask: (path, asked) => ask(socket, path, asked),
    stop: async () => {
      await ended(child);
      await rm(folder, { recursive: true });
    },
  };
}

function configOf(folder: string, socket: string, url: string, more: string): string {
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  return `
daemon off;
master_process off;
pid ${folder}/pid;
error_log ${folder}/error.log;
events {}
http {
  access_log off;
  ${temporary.map((name) => `${name}_temp_path ${folder}/${name};`).join('\n  ')}
  server {
    listen unix:${socket};
    location / {
      proxy_pass ${url};
      ${more}
    }
  }
}
`;
}

async function ended(child: ChildProcess): Promise<void> {
  const end = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  await end;
}

function ask(
  socketPath: string,
  path: string,
  { method = 'GET', headers = {}, body, isEnough }: ProxiedRequest = {},
): Promise<ProxyAnswer> {
  return new Promise((resolve, reject) => {
    const asking = request({ socketPath, path, method, headers }, (response) => {
      let text = '';
      const settle = (): void => resolve({ status: response.statusCode ?? 0, headers: response.headers, text });
      response.on('data', (data: Buffer) => {
        text += data.toString();
        if (isEnough?.(text) !== true) return;
        settle();
        asking.destroy();
      });
      response.on('end', settle);
    });
    asking.on('error', reject);
    asking.end(body);
  });
}
