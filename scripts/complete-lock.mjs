// Adds to package-lock.json the entries of platform packages that npm left out because the registry in use does not carry
// them. `npm ci` compares the lock with every optional dependency, also those of other platforms, and refuses a lock
// that lacks one. Run it after each `npm install` that changes the lock.
import { readFileSync, writeFileSync } from 'node:fs';

const OS = {
  android: 'android',
  darwin: 'darwin',
  freebsd: 'freebsd',
  linux: 'linux',
  openharmony: 'openharmony',
  win32: 'win32',
  windows: 'win32',
  netbsd: 'netbsd',
  openbsd: 'openbsd',
  sunos: 'sunos',
  aix: 'aix',
};
const CPU = ['arm64', 'arm', 'x64', 'ia32', 'ppc64', 'riscv64', 's390x', 'loong64', 'mips64el', 'wasm32'];

for (const file of process.argv.length > 2 ? process.argv.slice(2) : ['package-lock.json']) {
  const lock = JSON.parse(readFileSync(file, 'utf8'));
  let added = 0;
  for (const [path, entry] of Object.entries({ ...lock.packages })) {
    for (const [name, range] of Object.entries(entry.optionalDependencies ?? {})) {
      const places = [`${path}/node_modules/${name}`, `node_modules/${name}`];
      if (path === '' || places.some((place) => place in lock.packages)) continue;
      const words = name.split('/').at(-1).split('-');
      const os = words.map((word) => OS[word]).find(Boolean);
      const cpu = words.find((word) => CPU.includes(word));
      if (os === undefined && cpu === undefined) continue;
      const version = range.replace(/^[\^~]/, '');
      lock.packages[`node_modules/${name}`] = {
        version,
        ...(cpu ? { cpu: [cpu] } : {}),
        ...(entry.dev ? { dev: true } : {}),
        optional: true,
        ...(os ? { os: [os] } : {}),
      };
      added += 1;
    }
  }
  lock.packages = Object.fromEntries(Object.entries(lock.packages).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)));
  writeFileSync(file, `${JSON.stringify(lock, null, 2)}\n`);
  console.error(`${file}: ${added} entries added`);
}
