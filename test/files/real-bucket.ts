import { randomUUID } from 'node:crypto';
import {
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { type Content, type S3Options, s3 } from '../../src/files/index.ts';
import type { TestStore } from './world.ts';

/**
 * Makes stores in the bucket of PAWL_S3_BUCKET, each under a prefix of its own, which it empties at the end; undefined if no
 * bucket is named. PAWL_S3_ENDPOINT is for stores that are not Amazon's; the SDK finds region and credentials as usual.
 */
export function realBucket(env: NodeJS.ProcessEnv): (() => Promise<TestStore>) | undefined {
  const { PAWL_S3_BUCKET: bucket, PAWL_S3_ENDPOINT: endpoint } = env;
  if (!bucket) return undefined;
  return () => openBucket({ bucket, ...(endpoint && { endpoint }), prefix: `pawl-test/${randomUUID()}` });
}

async function openBucket(options: S3Options & { prefix: string }): Promise<TestStore> {
  const { bucket: Bucket, endpoint, prefix } = options;
  const client = new S3Client(endpoint === undefined ? {} : { endpoint, region: 'us-east-1', forcePathStyle: true });
  const Key = (name: string): string => `${prefix}/objects/${name}`;
  const keys = async (Prefix: string): Promise<string[]> => {
    const { Contents = [] } = await client.send(new ListObjectsV2Command({ Bucket, Prefix }));
    return Contents.map((each) => each.Key ?? '');
  };
  const clients: Content[] = [];
  const again = (): Content => {
    const content = s3(options);
    clients.push(content);
    return content;
  };
  return {
    content: again(),
    again,
    place: { s3: options },
    names: async () => (await keys(Key(''))).map((key) => key.slice(Key('').length)).sort(),
    bytes: async (name) => {
      const { Body } = await client.send(new GetObjectCommand({ Bucket, Key: Key(name) }));
      return Buffer.from((await Body?.transformToByteArray()) ?? []);
    },
    put: async (name, Body) => void (await client.send(new PutObjectCommand({ Bucket, Key: Key(name), Body }))),
    remove: async (name) => void (await client.send(new DeleteObjectCommand({ Bucket, Key: Key(name) }))),
    stop: async () => {
      for (const key of await keys(prefix)) await client.send(new DeleteObjectCommand({ Bucket, Key: key }));
      for (const content of clients) content.stop();
      client.destroy();
    },
  };
}
