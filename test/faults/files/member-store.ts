import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Content, disk, type S3Options, s3 } from '../../../src/files/index.ts';
import { fullDisk } from '../../support/servers/full-disk.ts';

/** The place of the bytes, and the flag files of its faults. A member gets this from its environment. */
export interface StorePlace {
  readonly dir?: string;
  readonly s3?: S3Options;
  /** While this file exists, no call is answered. */
  readonly hanging: string;
  /** While this file exists, the disk is full. */
  readonly full: string;
}

/** The time limits of a member. */
export function limitsOf(ms: number): { connect: number; firstByte: number; idle: number; total: number } {
  return { connect: ms / 4, firstByte: ms / 3, idle: ms / 3, total: ms };
}

/** The store of this process. The process kills itself at the call that the plan names, before or after the call. */
export async function openStore({
  STORE = '{}',
  KILL_AT = '[]',
  FAULTS_LOG = '',
}: NodeJS.ProcessEnv): Promise<Content> {
  const { dir, s3: bucket, hanging, full }: StorePlace = JSON.parse(STORE);
  if (dir !== undefined) await fullDisk(dir, () => existsSync(full));
  const content = bucket === undefined ? disk(dir ?? '') : s3(bucket);
  const killAt: readonly number[] = JSON.parse(KILL_AT);
  return failing(content, hanging, killAt[livesBefore(FAULTS_LOG)] ?? Infinity);
}

function livesBefore(log: string): number {
  return readFileSync(log, 'utf8')
    .split('\n')
    .filter((line) => line.includes('"do":"born"')).length;
}

const CALLS = [
  'put',
  'get',
  'size',
  'copy',
  'delete',
  'list',
  'quarantine',
  'readMarker',
  'writeMarker',
  'probe',
] as const;

function failing(content: Content, hanging: string, killAt: number): Content {
  let calls = 0;
  const die = (): void => void process.kill(process.pid, 'SIGKILL');
  for (const name of CALLS) {
    const call: () => unknown = Reflect.get(Object(content), name);
    const failingCall = async (...given: unknown[]): Promise<unknown> => {
      calls += 1;
      const isLast = calls === killAt;
      if (isLast && killAt % 2 === 0) die();
      while (existsSync(hanging)) await sleep(30);
      const answer = await Reflect.apply(call, content, given);
      if (isLast) die();
      return answer;
    };
    Object.defineProperty(content, name, { value: failingCall, configurable: true });
  }
  return content;
}
