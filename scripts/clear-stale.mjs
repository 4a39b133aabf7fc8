// Removes built files whose source was removed or moved. Otherwise they would be packed and could still be imported. Files with a source
// stay, because a program that runs from dist/ may load them at any time.
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

for (const [built, source] of [
  ['dist', 'src'],
  ['dist-examples', 'examples'],
]) {
  const folder = fileURLToPath(new URL(`../${built}/`, import.meta.url));
  if (!existsSync(folder)) continue;
  for (const path of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    const [, stem] = /^(.*?)(?:\.d\.ts|\.js)(?:\.map)?$/.exec(path) ?? [];
    if (stem === undefined || /^(?:dashboard|vendor)\//.test(path)) continue;
    const hasSource = ['ts', 'tsx'].some((ending) =>
      existsSync(fileURLToPath(new URL(`../${source}/${stem}.${ending}`, import.meta.url))),
    );
    if (!hasSource) rmSync(`${folder}${path}`);
  }
}
