// `npm run test:browser` uses Debian's chromium. If it is missing, this script tries to install it. CHROMIUM names another
// browser.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';

const PLACES = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
const find = () => PLACES.find((path) => path !== undefined && existsSync(path));

if (find() === undefined) {
  const run = (...words) => {
    const [command, ...rest] = words;
    const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
    return spawnSync(command, rest, { stdio: ['ignore', 'ignore', 'inherit'], env, timeout: 300_000 }).status === 0;
  };
  console.error('chromium is not here; installing it');
  run('apt-get', 'update');
  run('apt-get', 'install', '-y', '--no-install-recommends', 'chromium');
}
if (find() === undefined) {
  console.error(
    'there is no chromium, and it could not be installed: apt-get install chromium, or name one with CHROMIUM',
  );
  process.exit(1);
}
