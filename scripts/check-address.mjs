// Run before a release: fails if package.json lacks the addresses of the project. The repository has no public address yet, and without
// one the links of the package's page lead nowhere.
import { readFileSync } from 'node:fs';

const manifest = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
const missing = ['repository', 'homepage', 'bugs', 'keywords'].filter((field) => manifest[field] === undefined);
if (missing.length > 0) {
  console.error(`package.json has no ${missing.join(', ')}: add them before the package is published`);
  process.exit(1);
}
