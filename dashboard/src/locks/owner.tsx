import type { JSX } from 'preact';

interface Owner {
  readonly host: string;
  readonly pid: number;
  readonly job: string | null;
}

/** The owner of a lock: the process, and the job that it works for, if that is known. */
export function OwnerOf({ of: { host, pid, job } }: { readonly of: Owner }): JSX.Element {
  return (
    <>
      {host}:{pid}
      {job !== null && (
        <>
          {' for '}
          <a class="in-text" href={`jobs/${job}`}>
            job {job}
          </a>
        </>
      )}
    </>
  );
}
