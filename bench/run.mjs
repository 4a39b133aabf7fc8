// Puts the peers in place, then runs the benches on the Node that they, and our side, are measured on.
import { spawn, spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const here = new URL('./', import.meta.url);
const lock = new URL('package-lock.json', here);
// npm ci removes the folder first, so this copy of the lock is there only after a complete installation.
const installed = new URL('node_modules/.installed-lock.json', here);

if (!existsSync(installed) || readFileSync(installed, 'utf8') !== readFileSync(lock, 'utf8')) {
  process.stderr.write('bench: installing the peers and Node 24 into bench/node_modules (once)\n');
  const { status } = spawnSync('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], {
    cwd: fileURLToPath(here),
    stdio: ['ignore', 2, 2],
    shell: process.platform === 'win32',
  });
  if (status !== 0) {
    process.stderr.write('bench: npm ci failed in bench/; it needs the npm registry the first time\n');
    process.exit(1);
  }
  copyFileSync(lock, installed);
}

const node = ['linux-x64', 'linux-arm64', 'darwin-x64', 'darwin-arm64']
  .filter((platform) => platform === `${process.platform}-${process.arch}`)
  .flatMap((platform) => [`node-${platform}`, `node-bin-${platform}`])
  .map((name) => fileURLToPath(new URL(`node_modules/${name}/bin/node`, here)))
  .find((path) => existsSync(path));
if (node === undefined) {
  process.stderr.write(`bench: npm has no Node 24 for ${process.platform}-${process.arch}; run it on Linux or macOS\n`);
  process.exit(1);
}

const main = spawn(node, [fileURLToPath(new URL('main.ts', here)), ...process.argv.slice(2)], { stdio: 'inherit' });
// The terminal sends these to the whole group; a supervisor sends them to this process alone.
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => main.kill(signal));
main.on('exit', (code) => {
  process.exitCode = code ?? 1;
});
