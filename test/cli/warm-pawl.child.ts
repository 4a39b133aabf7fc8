// Runs one command line after another, each as if it were alone: with its environment, its folder and its output.
import { pathToFileURL } from 'node:url';
import type * as CommandLine from '../../src/cli/command-line.ts';
import type { PawlExit } from './pawl.ts';
import type { PawlOutput } from './warm-pawl.ts';

const [, , path = ''] = process.argv;
const { runCommandLine }: typeof CommandLine = await import(pathToFileURL(path).href);
const home = process.cwd();

let before: Promise<void> = Promise.resolve();
process.on('message', (told: PawlOutput) => {
  before = before.then(async () => void process.send?.(await run(told)));
});
process.on('disconnect', () => process.exit());
process.send?.('ready');

async function run({ words, env, cwd = home }: PawlOutput): Promise<PawlExit> {
  process.env = env;
  process.exitCode = undefined;
  process.chdir(cwd);
  const [stdout, stderr] = [caught(process.stdout), caught(process.stderr)];
  const code = await runCommandLine(words);
  return { code, stdout: stdout(), stderr: stderr() };
}

/** Keeps what is written from now on. @returns gives it, and lets the stream go again */
function caught(stream: NodeJS.WriteStream): () => string {
  const chunks: Buffer[] = [];
  stream.write = (chunk: string | Uint8Array, ...rest: unknown[]): boolean => {
    chunks.push(Buffer.from(chunk as string));
    const done = rest.find((one) => typeof one === 'function');
    if (done !== undefined) process.nextTick(done as () => void);
    return true;
  };
  return () => {
    Reflect.deleteProperty(stream, 'write');
    return Buffer.concat(chunks).toString();
  };
}
