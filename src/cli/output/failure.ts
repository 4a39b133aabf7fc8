import {
  Conflict,
  ConnectionFailed,
  DatabaseError,
  DuplicateKey,
  InvalidInput,
  LockNotAvailable,
  NotFound,
  PawlError,
  SchemaMismatch,
  StatementTimeout,
  StoreRefused,
  StoreUnavailable,
  TimedOut,
  UploadExpired,
  VersionConflict,
} from '../../base/errors.ts';

/** The meaning of the exit codes; docs/cli.md has the same table. */
export const EXIT = {
  done: 0,
  /** The work failed, or the command has found a problem, such as a pending migration. */
  failed: 1,
  usage: 2,
  /** The database cannot be reached, or refuses the login. */
  unreachable: 3,
  notFound: 4,
  conflict: 5,
  timeout: 6,
  interrupted: 130,
  terminated: 143,
} as const;

/** A command's own failure: `next` is the command, or the step, that helps. */
export class Failure extends Error {
  readonly exit: number;
  readonly next: string | undefined;

  constructor(message: string, { exit = EXIT.failed, next }: { exit?: number; next?: string } = {}) {
    super(message);
    this.name = 'Failure';
    this.exit = exit;
    this.next = next;
  }
}

/** The user pressed Ctrl-C, or the system asked the process to end. */
export class Interruption extends Failure {
  constructor(signal: NodeJS.Signals) {
    super(`interrupted by ${signal}`, { exit: signal === 'SIGINT' ? EXIT.interrupted : EXIT.terminated });
    this.name = 'Interruption';
  }
}

/** What to throw when a file was written and this error came: a failure of the file system, in words, or else the error itself. */
export function orNotWritten(path: string, error: unknown): unknown {
  if (!(error instanceof Error) || !('syscall' in error)) return error;
  if (!['open', 'write', 'rename'].includes(String(error.syscall))) return error;
  return new Failure(`${path} cannot be written: ${error.message}`, { exit: EXIT.usage, next: 'check the path' });
}

/** The exit code for any error that a command threw. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof Failure) return error.exit;
  if (error instanceof InvalidInput) return EXIT.usage;
  if (error instanceof ConnectionFailed || isLoginRefused(error)) return EXIT.unreachable;
  if (error instanceof StoreUnavailable || error instanceof StoreRefused) return EXIT.unreachable;
  if (error instanceof VersionConflict || error instanceof UploadExpired) return EXIT.conflict;
  if (error instanceof NotFound) return EXIT.notFound;
  if (error instanceof Conflict || error instanceof LockNotAvailable || error instanceof DuplicateKey)
    return EXIT.conflict;
  return error instanceof TimedOut || error instanceof StatementTimeout ? EXIT.timeout : EXIT.failed;
}

/** What to do next about an error that a command threw, if that is known. */
export function nextStepOf(error: unknown): string | undefined {
  if (error instanceof Failure) return error.next;
  if (error instanceof SchemaMismatch) return 'pawl migrate status';
  if (isLoginRefused(error))
    return 'check user, password and database name of the URL; pawl doctor shows where it came from';
  if (isRightMissing(error))
    return 'let the owner of the schema run these statements, with the role of the URL for ROLE';
  if (error instanceof ConnectionFailed) return 'pawl doctor';
  if (error instanceof TimedOut || error instanceof StatementTimeout)
    return 'give a longer --timeout, or look with pawl doctor';
  if (error instanceof NotFound) return 'pawl queue list, or pawl job list, shows what there is';
  return undefined;
}

/** Invalid authorisation, wrong password, no such database. */
export function isLoginRefused(error: unknown): boolean {
  return error instanceof DatabaseError && ['28000', '28P01', '3D000'].includes(error.sqlState ?? '');
}

/** The role may not do this. */
export function isRightMissing(error: unknown): boolean {
  return error instanceof DatabaseError && error.sqlState === '42501';
}

/** The message for people. If the error is none of ours, it shows a bug, so its stack belongs to the message. */
export function messageOf(error: unknown): string {
  if (error instanceof Failure || error instanceof PawlError) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
