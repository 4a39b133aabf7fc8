/** Versioned files outside the database, as safe as a row inside it: `createFiles(postgres(url), { content: disk(dir) })`. */

export {
  CollectorHalted,
  CorruptObject,
  StoreRefused,
  StoreUnavailable,
  UploadExpired,
  VersionConflict,
} from '../base/errors.ts';
export type { Duration } from '../base/time/duration.ts';
export { createFileAdmin, type FileAdmin } from './admin.ts';
export type {
  Budget,
  Content,
  ContentCall,
  DeleteCall,
  Listed,
  ListPage,
  Part,
  PutCall,
  Range,
  StoreProbe,
} from './content.ts';
export { disk } from './disk.ts';
export type { FileExplanation } from './explain.ts';
export { createFiles, Files, type FilesEvents, type RemoveOptions } from './files.ts';
export type { HotFiles, HotOptions, HotReading, HotReadOptions } from './hot.ts';
export type { ChangeOptions, FilesOptions, LimitOptions, LockLike, WriteOptions } from './options.ts';
export type { FileStoreRecord, ReloadRecord } from './postgres-admin.ts';
export type { PublishOptions, Upload, Written } from './publish.ts';
export type { FileReading, ReadOptions } from './reading.ts';
export type { DamagedVersion, ReconcileFailure, ReconcileReport } from './reconcile.ts';
export { type S3Options, s3 } from './s3.ts';
export type { FileSource } from './source.ts';
export type { Reload, Standing, UploadFate } from './store.ts';
export type { CollectorState, SweepReport } from './sweep.ts';
export type { FileState, FileVersion, PastVersion } from './version.ts';
