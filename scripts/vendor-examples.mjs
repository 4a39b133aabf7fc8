// The compiled examples import three packages that Pawl itself does not need. This script writes them into dist-examples/vendor/, one
// module each, with their licences. So `npx pawl dev` runs where only Pawl is installed.
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));
const examples = join(root, 'dist-examples');
const vendor = join(examples, 'vendor');

/** The name by which each package is imported, and the name of its module here. */
const PACKAGES = {
  valibot: 'valibot.js',
  'write-excel-file/node': 'write-excel-file.js',
  'read-excel-file/node': 'read-excel-file.js',
};

mkdirSync(vendor, { recursive: true });
await build({
  entryPoints: Object.entries(PACKAGES).map(([name, file]) => ({ in: name, out: file.replace(/\.js$/, '') })),
  outdir: vendor,
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node20',
  minify: true,
  // Some of their code is CommonJS, and loads modules of Node by require().
  banner: {
    js: "import { createRequire as requireFrom } from 'node:module'; const require = requireFrom(import.meta.url);",
  },
  logLevel: 'warning',
});
writeFileSync(join(vendor, 'LICENSES.md'), Object.keys(PACKAGES).map(licence).join('\n\n'));

const scripts = readdirSync(examples, { recursive: true, encoding: 'utf8' }).filter(
  (path) => path.endsWith('.js') && !path.startsWith(`vendor${sep}`),
);
for (const script of scripts) {
  const path = join(examples, script);
  const text = readFileSync(path, 'utf8');
  const changed = Object.entries(PACKAGES).reduce(
    (all, [name, file]) => all.replaceAll(`from '${name}'`, `from '${importPath(path, file)}'`),
    text,
  );
  if (changed !== text) writeFileSync(path, changed);
}

function importPath(from, file) {
  const path = relative(join(from, '..'), join(vendor, file)).split(sep).join('/');
  return path.startsWith('.') ? path : `./${path}`;
}

function licence(name) {
  const folder = join(root, 'node_modules', name.split('/')[0]);
  const { version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const file = ['LICENSE', 'LICENSE.md'].map((one) => join(folder, one)).find((one) => existsSync(one));
  if (file === undefined) throw new Error(`${name} has no licence to copy`);
  return `# ${name.split('/')[0]} ${version}\n\n${readFileSync(file, 'utf8').trim()}\n`;
}
