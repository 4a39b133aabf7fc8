import type { Command } from 'commander';
import { NotFound } from '../../base/errors.ts';
import type { Content, Files } from '../../files/index.ts';
import { EXIT, Failure } from '../output/failure.ts';
import type { Cli } from './run.ts';

/** The place of the bytes, by the command line. */
export interface StoreFlags {
  readonly store?: string;
  readonly endpoint?: string;
  readonly namespace: string;
}

/** Adds the options that name the place of the bytes. */
export function storeOptions(command: Command): Command {
  return command
    .option('--store <place>', 'the store: a folder, or s3://bucket/prefix; else PAWL_FILES')
    .option('--endpoint <url>', 'the URL of a store that speaks S3 and is not Amazon’s; else PAWL_FILES_ENDPOINT')
    .option('--namespace <namespace>', 'the namespace of the files, as passed to createFiles', '');
}

/** The files of the command line's database and store. @throws Failure (usage) if no store was named */
export async function openFiles(cli: Cli, { store, endpoint, namespace }: StoreFlags): Promise<Files> {
  const place = store ?? process.env['PAWL_FILES'] ?? '';
  if (place === '') {
    throw new Failure('no content store was named: there is no --store and no PAWL_FILES', {
      exit: EXIT.usage,
      next: 'add --store ./objects, or --store s3://bucket/prefix',
    });
  }
  const engine = await cli.engine();
  const { createFiles } = await import('../../files/index.ts');
  const content = await openContent(place, endpoint ?? process.env['PAWL_FILES_ENDPOINT']);
  const files = createFiles(engine, { content, namespace });
  cli.atEnd(() => files.stop());
  return files;
}

/** Advice for a caller that named a document or a version that does not exist. */
export function orFileNotFound(error: unknown): never {
  if (!(error instanceof NotFound)) throw error;
  const next = 'pawl file list shows the documents, and pawl file history ID the versions of one';
  throw new Failure(error.message, { exit: EXIT.notFound, next });
}

/** @param place  a folder, or s3://bucket/prefix */
export async function openContent(place: string, endpoint: string | undefined): Promise<Content> {
  const { disk, s3 } = await import('../../files/index.ts');
  if (!place.startsWith('s3://')) return disk(place);
  const [bucket = '', ...prefix] = place.slice('s3://'.length).replace(/\/$/, '').split('/');
  return s3({ bucket, prefix: prefix.join('/'), ...(endpoint !== undefined && { endpoint }) });
}
