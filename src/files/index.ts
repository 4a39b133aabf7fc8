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
export type {
  Content,
  ContentCall,
  DeleteCall,
  ListEntry,
  ListPage,
  Part,
  PutCall,
  Range,
  StoreProbe,
  TransferLimits,
} from './content.ts';
export { disk } from './disk/index.ts';
export { type CopyOptions, createFiles, Files, type FilesEvents, type RemoveOptions } from './files.ts';
export type { HotFiles, HotOptions, HotReading, HotReadOptions } from './hot/index.ts';
export { createFileAdmin, type FileAdmin } from './operate/admin.ts';
export type { FileExplanation } from './operate/explain.ts';
export type { DamagedVersion, ReconcileFailure, ReconcileReport } from './operate/reconcile.ts';
export type { CollectorState, SweepReport } from './operate/sweep.ts';
export type { ChangeOptions, FilesOptions, LimitOptions, LockLike, UploadOptions, WriteOptions } from './options.ts';
export type { FileStoreRecord, ReloadRecord } from './postgres/admin.ts';
export type { FileReading, ReadOptions } from './reader.ts';
export { type S3Options, s3 } from './s3/index.ts';
export type { DocumentLock, Reload, UploadFate } from './store.ts';
export type { FileState, FileVersion, PastVersion } from './version.ts';
export type { PublishOptions, Upload, WriteResult } from './write/publish.ts';
export type { FileSource } from './write/source.ts';
