// Installs the peers and a Node 24 if they are missing. Then runs the bench on that Node, on which all sides are measured.
import { spawn, spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const here = new URL('./', import.meta.url);
const lock = new URL('package-lock.json', here);
// `npm ci` first removes the folder. So this copy of the lock file exists only after a complete installation.
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
// A terminal sends these signals to the whole process group. A supervisor sends them to this process alone.
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => main.kill(signal));
main.on('exit', (code) => {
  process.exitCode = code ?? 1;
});
