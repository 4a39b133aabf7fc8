/** One result of `pawl doctor`. A `warn` may be intended; a `fail` is never intended. */
export interface Finding {
  readonly check: string;
  readonly verdict: 'ok' | 'warn' | 'fail';
  readonly detail: string;
  /** The command or step that mends it. */
  readonly fix: string | null;
}

export function ok(check: string, detail: string): Finding {
  return { check, verdict: 'ok', detail, fix: null };
}

export function warn(check: string, detail: string, fix: string): Finding {
  return { check, verdict: 'warn', detail, fix };
}

export function fail(check: string, detail: string, fix: string | null): Finding {
  return { check, verdict: 'fail', detail, fix };
}
