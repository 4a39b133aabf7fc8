// Writes one version, and prints what it wrote. PAWL_FAULT names the point at which it dies. Arguments: the URL, the place of
// the bytes ({dir} or {s3}), the namespace, the document, the number of bytes, and "tx" for a transaction.
import { type OpenTransaction, postgres } from '../../src/engine/postgres/index.ts';
import { createFiles, disk, type S3Options, s3, type WriteResult } from '../../src/files/index.ts';

const [, , url = '', where = '{}', namespace = '', id = '', size = '0', how = ''] = process.argv;
const place: { dir?: string; s3?: S3Options } = JSON.parse(where);
const engine = postgres(url, { max: 2 });
const content = place.s3 === undefined ? disk(place.dir ?? '') : s3(place.s3);
const files = createFiles(engine, { content, namespace });
const write = (tx?: OpenTransaction): Promise<WriteResult> => files.write(id, Buffer.alloc(Number(size), id), { tx });
const { version, object } = await (how === 'tx' ? engine.transaction(write) : write());
console.log(JSON.stringify({ version, object }));
await files.stop();
await engine.stop();
