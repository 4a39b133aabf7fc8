import { describe, expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../src/engine/postgres/index.ts';
import { createFiles, s3 } from '../../src/files/index.ts';
import { freshDatabase } from '../support/database.ts';
import { spawnChild } from '../support/process.ts';
import { describeFiles } from './contract.ts';
import { realBucket } from './real-bucket.ts';
import { bucketStore } from './world.ts';

describeFiles('s3', () => bucketStore());

// The same promises on a real bucket: CONTRIBUTING.md says how to name it.
const real = realBucket(process.env);
describe.skipIf(real === undefined)('on the bucket of PAWL_S3_BUCKET', () => {
  describeFiles('real s3', real ?? bucketStore);
});

/** Node's option for a process whose clock differs from the machine's by this time. */
function clockOff(ms: number): string {
  const script = `const Real = Date;
    globalThis.Date = class extends Real {
      constructor(...given) { given.length === 0 ? super(Real.now() + ${ms}) : super(...given); }
      static now() { return Real.now() + ${ms}; }
    };`;
  return `--import=data:text/javascript;base64,${Buffer.from(script).toString('base64')}`;
}

test('a process whose clock is hours off writes to a bucket anyway', async () => {
  const { url } = await freshDatabase();
  const store = await bucketStore();
  onTestFinished(() => store.stop());
  for (const hours of [-2, 2]) {
    const args = [url, JSON.stringify(store.place), '', `doc ${hours}`, '5'];
    const child = spawnChild('files/writer.child.ts', args, { NODE_OPTIONS: clockOff(hours * 3_600_000) });
    expect(await child.message()).toMatchObject({ version: 1 });
  }
});

test('missing and wrong credentials are refusals of the store that say what to set', async () => {
  const engine = postgres((await freshDatabase()).url, { max: 2 });
  onTestFinished(() => engine.stop());
  const store = await bucketStore();
  onTestFinished(() => store.stop());
  const { bucket, endpoint, credentials } = store.server.connection;
  const before = { ...process.env };
  onTestFinished(() => {
    process.env = before;
  });
  process.env = Object.fromEntries(Object.entries(before).filter(([name]) => !name.startsWith('AWS_')));
  Object.assign(process.env, { HOME: '/nonexistent', AWS_EC2_METADATA_DISABLED: 'true' });
  const wrong = [undefined, { ...credentials, secretAccessKey: 'another' }, { ...credentials, accessKeyId: 'unknown' }];
  for (const given of wrong) {
    const content = s3({ bucket, endpoint, ...(given !== undefined && { credentials: given }) });
    const files = createFiles(engine, { content, namespace: 'unknown' });
    await expect(files.write('doc', 'x')).rejects.toMatchObject({
      code: 'store_refused',
      message: expect.stringMatching(/; check the credentials of s3\(\) or of the environment$/),
    });
    await files.stop();
  }
});
