// Reads a document from the hot copies of its host, and prints the result. PAWL_FAULT names the point at which it dies.
import { postgres } from '../../src/engine/postgres/index.ts';
import { createFiles, disk } from '../../src/files/index.ts';

const [, , url = '', dir = '', hot = '', namespace = '', id = ''] = process.argv;
const engine = postgres(url, { max: 2 });
const files = createFiles(engine, { content: disk(dir), namespace });
const { stream, version } = await files.hot({ dir: hot }).open(id);
let size = 0;
for await (const chunk of stream) size += chunk.length;
console.log(JSON.stringify({ size, version: version.version }));
await files.stop();
await engine.stop();
