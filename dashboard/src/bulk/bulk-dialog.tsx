import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { type ApiError, send } from '../data/api.ts';
import type { Bulk, BulkPreview } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Skeleton, Trouble } from '../parts/card.tsx';
import { Modal } from '../parts/dialog.tsx';
import { count, plural } from '../text/format.ts';
import { Name } from '../text/name.tsx';

export type BulkAction = 'retry' | 'cancel' | 'finish' | 'redrive' | 'erase';
/** The jobs that a search finds, or the jobs that the user has chosen. */
export type BulkTarget = { readonly query: string; readonly queue?: string } | { readonly jobs: readonly string[] };

const DONE = {
  retry: 'retried',
  cancel: 'cancelled',
  finish: 'completed',
  redrive: 'redriven',
  erase: 'erased',
} as const;
const VERBS = { retry: 'Retry', cancel: 'Cancel', finish: 'Complete', redrive: 'Redrive', erase: 'Erase' } as const;
/** For this many jobs or more, the user must type the number, which prevents a slip of the hand. */
const MANY = 100;

interface BulkDialogProps {
  readonly action: BulkAction;
  readonly of: BulkTarget;
  readonly onClose: () => void;
  readonly onBegun: (id: string) => void;
}

/** Shows how many jobs there are before they are changed, how many of them the action can change, and some of them. */
export function BulkDialog({ action, of, onClose, onBegun }: BulkDialogProps): JSX.Element {
  const [preview, setPreview] = useState<BulkPreview | undefined>();
  const [error, setError] = useState<Error | undefined>();
  const [reason, setReason] = useState('');
  const [typed, setTyped] = useState('');
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    send<BulkPreview>('POST', 'bulk/preview', { action, ...of }).then(setPreview, (failure: ApiError) =>
      setError(failure),
    );
  }, []);
  const fitting = preview?.fitting ?? 0;
  const mustType = preview !== undefined && (fitting >= MANY || !preview.isAll);
  const isReady = !isBusy && fitting > 0 && (!mustType || typed === String(fitting));
  const begin = async (): Promise<void> => {
    const why = reason.trim();
    setBusy(true);
    try {
      onBegun((await send<Bulk>('POST', 'bulk', { action, ...of, ...(why === '' ? {} : { reason: why }) })).id);
    } catch (failure) {
      setError(failure instanceof Error ? failure : new Error(String(failure)));
      setBusy(false);
    }
  };
  const title = `${VERBS[action]} ${'jobs' in of ? 'the jobs that are selected' : 'every job that fits'}`;
  return (
    <Modal title={title} onClose={onClose}>
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          if (isReady) void begin();
        }}
      >
        <h2>{title}</h2>
        <Target of={of} />
        {error !== undefined && <Trouble error={error} />}
        {preview === undefined ? error === undefined && <Skeleton /> : <Preview of={preview} action={action} />}
        {action === 'cancel' && fitting > 0 && (
          <label>
            Reason, kept with each job
            <input value={reason} maxLength={1000} onInput={(event) => setReason(event.currentTarget.value)} />
          </label>
        )}
        {mustType && fitting > 0 && (
          <label>
            <span>
              Type <code>{fitting}</code> to go on
            </span>
            <input
              value={typed}
              inputMode="numeric"
              autoComplete="off"
              onInput={(event) => setTyped(event.currentTarget.value)}
            />
          </label>
        )}
        <div class="actions">
          <button type="button" onClick={onClose}>
            Back
          </button>
          <button
            type="submit"
            class={`primary ${action === 'cancel' || action === 'erase' ? 'danger' : ''}`}
            disabled={!isReady}
          >
            {VERBS[action]} {fitting > 0 ? plural(fitting, 'job') : 'none'}
          </button>
        </div>
      </form>
    </Modal>
  );
}

function Target({ of }: { readonly of: BulkTarget }): JSX.Element | null {
  if ('jobs' in of) return null;
  return (
    <p class="muted">
      What <code class="wrap">{of.query}</code> finds{' '}
      {of.queue === undefined ? (
        'in all queues'
      ) : (
        <>
          in queue <Name of={of.queue} />
        </>
      )}
      , at most 100,000. It goes on when this page is closed.
    </p>
  );
}

function Preview({ of, action }: { readonly of: BulkPreview; readonly action: BulkAction }): JSX.Element {
  const { found, fitting, isAll, sample } = of;
  const many = `${isAll ? '' : 'at least '}${count(found, Infinity)}`;
  if (fitting === 0)
    return (
      <p role="status">
        {found === 0
          ? 'No job fits.'
          : `Of ${many} that ${found === 1 ? 'is' : 'are'} found, none can be ${DONE[action]}.`}
      </p>
    );
  return (
    <>
      <p role="status">
        <strong>
          {isAll ? '' : 'At least '}
          {plural(fitting, 'job')}
        </strong>{' '}
        will be {DONE[action]}
        {found > fitting && `; ${count(found - fitting, Infinity)} more that are found cannot be`}.
      </p>
      <ul class="small sample" aria-label="Some of them">
        {sample.map(({ id, kind, status }) => (
          <li key={id}>
            <code>{id}</code> <Name of={kind} /> <Badge status={status} />
          </li>
        ))}
        {fitting > sample.length && <li class="muted">and {count(fitting - sample.length, Infinity)} more</li>}
      </ul>
    </>
  );
}
