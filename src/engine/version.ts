import { readFileSync } from 'node:fs';

let version: string | undefined;

/** Of this package, from its package.json: the same two folders up in src/ and in dist/. */
export function packageVersion(): string {
  version ??= String(JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')).version);
  return version;
}
