import { randomUUID } from 'node:crypto';
import { constants, createReadStream, createWriteStream } from 'node:fs';
import { access, link, lstat, rename, rm, stat, writeFile } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { FileVersion, WriteOptions } from '../../files/index.ts';
import { EXIT, Failure, orNotWritten } from '../output/failure.ts';
import type { Field } from '../output/output.ts';
import { startProgress } from '../output/progress.ts';
import { openFiles, orFileNotFound, type StoreFlags } from '../setup/open-files.ts';
import type { Cli } from '../setup/run.ts';

export interface PutFlags extends StoreFlags {
  readonly ifVersion?: number;
  readonly author?: string;
  readonly contentType?: string;
}

export interface GetFlags extends StoreFlags {
  readonly at?: number;
  readonly force?: boolean;
}

export const VERSION: readonly Field<FileVersion>[] = [
  { title: 'id', of: (row) => row.id },
  { title: 'version', of: (row) => String(row.version) },
  { title: 'size', of: (row) => String(row.size) },
  { title: 'sha256', of: (row) => row.sha256 },
  { title: 'author', of: (row) => row.author },
  { title: 'written', of: (row) => row.writtenAt },
];

/** Writes a document from a file, or from stdin. */
export async function put(cli: Cli, id: string, path: string, flags: PutFlags): Promise<number> {
  const size = path === '-' ? undefined : await sizeOf(path);
  const files = await openFiles(cli, flags);
  if (cli.globals.dryRun) {
    cli.talk.say(`would write ${size ?? 'what stdin gives, as'} bytes as "${id}"`);
    return EXIT.done;
  }
  const { ifVersion, author = process.env['USER'], contentType } = flags;
  const options: WriteOptions = {
    signal: cli.signal,
    ...(size !== undefined && { size }),
    ...(ifVersion !== undefined && { ifVersion }),
    ...(author !== undefined && author !== '' && { author }),
    ...(contentType !== undefined && { contentType }),
  };
  // Opened here: an error of a stream that is not read yet would end the process.
  const source = path === '-' ? process.stdin : createReadStream(path);
  const written = await files.write(id, counted(cli, `put ${id}`, source, size), options);
  cli.out.one(written, VERSION, String(written.version));
  return EXIT.done;
}

/** Reads a document into a file, which appears when it is complete and checked; or to stdout. */
export async function get(cli: Cli, id: string, path: string, flags: GetFlags): Promise<number> {
  const files = await openFiles(cli, flags);
  const version = flags.at === undefined ? {} : { version: flags.at };
  if (path !== '-' && flags.force !== true) await refuseIfThere(path);
  const reading = await files.read(id, { signal: cli.signal, ...version }).catch(orFileNotFound);
  const chunks = counted(cli, `get ${id}`, reading.stream, reading.version.size);
  if (path === '-') {
    await pipeline(chunks, process.stdout, { end: false });
    return EXIT.done;
  }
  const draft = `${path}.pawl-${randomUUID()}`;
  try {
    await pipeline(chunks, createWriteStream(draft, { flags: 'wx' }));
    await (flags.force === true ? rename(draft, path) : moveIfFree(draft, path));
  } catch (error) {
    throw orNotWritten(path, error);
  } finally {
    await rm(draft, { force: true });
  }
  cli.out.one(reading.version, VERSION, String(reading.version.version));
  return EXIT.done;
}

async function* counted(
  { talk }: Cli,
  what: string,
  source: Readable,
  size: number | undefined,
): AsyncGenerator<Buffer, void> {
  using progress = startProgress(talk, what, size ?? 0);
  let done = 0;
  for await (const chunk of source) {
    done += chunk.length;
    progress.at(done);
    yield chunk;
  }
}

async function sizeOf(path: string): Promise<number> {
  try {
    const found = await stat(path);
    await access(path, constants.R_OK);
    if (found.isFile()) return found.size;
  } catch (error) {
    throw new Failure(`${path} cannot be read: ${error instanceof Error ? error.message : String(error)}`, {
      exit: EXIT.usage,
      next: 'check the path',
    });
  }
  throw new Failure(`${path} is no file`, { exit: EXIT.usage, next: 'pack a folder first, e.g. with tar' });
}

/** Asks before the bytes are fetched. */
async function refuseIfThere(path: string): Promise<void> {
  const isThere = await lstat(path).then(
    () => true,
    () => false,
  );
  if (isThere) throw isTaken(path);
}

/** Gives the complete file its name, unless another program has made a file of that name meanwhile. */
async function moveIfFree(draft: string, path: string): Promise<void> {
  try {
    await link(draft, path);
  } catch (error) {
    if (isCode(error, 'EEXIST')) throw isTaken(path);
    // A disk without links: an empty file takes the name first.
    await writeFile(path, '', { flag: 'wx' }).catch((taken: unknown) => {
      throw isCode(taken, 'EEXIST') ? isTaken(path) : taken;
    });
    await rename(draft, path);
  }
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}

function isTaken(path: string): Failure {
  return new Failure(`${path} exists already`, { exit: EXIT.conflict, next: 'add --force to replace it' });
}
