import { describe } from 'vitest';
import { describeFiles } from './contract.ts';
import { realBucket } from './real-bucket.ts';
import { bucketStore } from './world.ts';

describeFiles('s3', () => bucketStore());

// The same promises on a real bucket: CONTRIBUTING.md says how to name it.
const real = realBucket(process.env);
describe.skipIf(real === undefined)('on the bucket of PAWL_S3_BUCKET', () => {
  describeFiles('real s3', real ?? bucketStore);
});
