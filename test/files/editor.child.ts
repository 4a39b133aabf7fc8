// Edits a document under a lock, and prints the outcome. PAWL_FAULT names the point at which it pauses.
import { postgres } from '../../src/engine/postgres/index.ts';
import { createFiles, disk } from '../../src/files/index.ts';
import { createLocks } from '../../src/lock/index.ts';

const [, , url = '', dir = '', namespace = '', id = ''] = process.argv;
const engine = postgres(url, { max: 3 });
const files = createFiles(engine, { content: disk(dir), namespace });
const lock = await createLocks(engine, { namespace }).acquire(id, { lease: '1m' });
const ended = await files.write(id, 'of one who was asleep', { lock }).then(
  ({ version }) => ({ version }),
  (error: unknown) => ({ code: Reflect.get(Object(error), 'code') }),
);
console.log(JSON.stringify(ended));
process.exit(0);
