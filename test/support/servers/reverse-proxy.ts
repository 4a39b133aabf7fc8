import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type IncomingHttpHeaders, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from '../eventually.ts';

interface Program {
  /** Undefined: it is not here. */
  readonly path: string | undefined;
  readonly configFile: string;
  readonly config: (place: Place) => string;
  readonly args: (config: string, folder: string) => readonly string[];
}

interface Place {
  readonly folder: string;
  readonly socket: string;
  /** What is behind it. */
  readonly url: string;
  /** Lines in addition to those that name it. */
  readonly more: string;
}

/** Real ones, with their defaults. Debian and others put them where no user's PATH may lead. */
export const REVERSE_PROXIES: Readonly<Record<'nginx' | 'caddy', Program>> = {
  nginx: {
    path: firstOf('/usr/sbin/nginx', '/usr/local/sbin/nginx', '/opt/homebrew/bin/nginx'),
    configFile: 'nginx.conf',
    config: nginxConfig,
    args: (config, folder) => ['-p', folder, '-c', config],
  },
  caddy: {
    path: firstOf('/usr/bin/caddy', '/usr/local/bin/caddy', '/opt/homebrew/bin/caddy'),
    configFile: 'Caddyfile',
    config: caddyConfig,
    args: (config) => ['run', '--adapter', 'caddyfile', '--config', config],
  },
};

function firstOf(...paths: readonly string[]): string | undefined {
  return paths.find((path) => existsSync(path));
}

export interface ProxyAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

export interface ReverseProxy {
  /** Asks through it. `isEnough`: how much of the body is waited for; undefined: all of it. */
  readonly ask: (path: string, asked?: ProxiedRequest) => Promise<ProxyAnswer>;
  readonly stop: () => Promise<void>;
}

interface ProxiedRequest {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly isEnough?: (text: string) => boolean;
}

/** In front of this URL, with these lines in addition to those that name it. It listens on a socket in a folder of its own. */
export async function startReverseProxy(
  name: keyof typeof REVERSE_PROXIES,
  url: string,
  more = '',
): Promise<ReverseProxy> {
  const { path = name, configFile, config, args } = REVERSE_PROXIES[name];
  const folder = await mkdtemp(join(tmpdir(), `pawl-${name}-`));
  const socket = join(folder, 'socket');
  await writeFile(join(folder, configFile), config({ folder, socket, url, more }));
  // Caddy keeps what it knows in these folders.
  const env = { ...process.env, HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder };
  const child = spawn(path, args(join(folder, configFile), folder), { stdio: 'ignore', env });
  // The file is there a moment before anything listens on it.
  await until(`${name} listens`, () =>
    ask(socket, '/').then(
      () => true,
      () => false,
    ),
  );
  return {
    ask: (asked, options) => ask(socket, asked, options),
    stop: async () => {
      await ended(child);
      await rm(folder, { recursive: true });
    },
  };
}

function nginxConfig({ folder, socket, url, more }: Place): string {
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

function caddyConfig({ socket, url, more }: Place): string {
  return `
{
  admin off
  auto_https off
}
http:// {
  bind unix/${socket}
  reverse_proxy ${new URL(url).host} {
    ${more}
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
