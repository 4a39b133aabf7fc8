// Before a release: the package says where it lives. Its repository has no public address yet, and the links of a package page lead
// nowhere without one.
import { readFileSync } from 'node:fs';

const manifest = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
const missing = ['repository', 'homepage', 'bugs', 'keywords'].filter((field) => manifest[field] === undefined);
if (missing.length > 0) {
  console.error(`package.json has no ${missing.join(', ')}: add them before the package is published`);
  process.exit(1);
}
