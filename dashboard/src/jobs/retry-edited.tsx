import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { getText, sendText } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import { type Problems, payloadText, pretty, problemOf, problemOfJson } from '../data/payload.ts';
import type { JobDetail } from '../data/types.ts';
import { Modal } from '../parts/dialog.tsx';
import { Field, Problem } from '../parts/field.tsx';
import { say } from '../parts/toast.tsx';
import { go } from '../router.ts';

/**
 * Edits a payload. A waiting job gets the new payload. If the job has ended, a new job with the new payload is enqueued, which names the
 * job that it comes from.
 */
export function RetryEdited({ of, onClose }: { readonly of: JobDetail; readonly onClose: () => void }): JSX.Element {
  const [payload, setPayload] = useState<string | undefined>();
  const [problems, setProblems] = useState<Problems>({});
  const guard = (work: Promise<void>): void => void work.catch((error: unknown) => setProblems(problemOf(error)));
  useEffect(() => guard(getText(`jobs/${of.id}/payload`).then((text) => setPayload(pretty(text)))), [of.id]);
  const isWaiting = of.status === 'new';
  const title = isWaiting ? 'Edit the payload' : 'Edit and retry';
  const write = async (): Promise<void> => {
    const wrong = problemOfJson(payload ?? '');
    setProblems(wrong);
    if (Object.keys(wrong).length > 0) return;
    // Sent as it was written, because JSON.parse would round long numbers.
    const body = `{"payload":${payloadText(payload ?? '')}}`;
    const { id } = await sendText<{ id: string }>(`jobs/${of.id}/${isWaiting ? 'update' : 'retry'}`, body);
    say(isWaiting ? `job ${id} has another payload` : `job ${id} does it once more`);
    onClose();
    if (isWaiting) refresh();
    else go(`jobs/${id}`);
  };
  return (
    <Modal title={title} onClose={onClose}>
      <form
        method="dialog"
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          guard(write());
        }}
      >
        <h2>{title}</h2>
        <p class="muted">
          {isWaiting
            ? 'No handler gets the one before. It is refused once the job has begun.'
            : `A new job of the same queue, kind and key, with this payload. Job ${of.id} stays as it is; each names the other.`}
        </p>
        <Field title="Payload, as JSON" problem={problems['payload']}>
          <textarea
            rows={12}
            spellcheck={false}
            value={payload ?? ''}
            disabled={payload === undefined}
            aria-invalid={problems['payload'] !== undefined}
            onInput={(event) => setPayload(event.currentTarget.value)}
          />
        </Field>
        {problems[''] !== undefined && <Problem text={problems['']} />}
        <div class="actions">
          <button type="button" onClick={onClose}>
            Back
          </button>
          <button type="submit" class="primary" disabled={payload === undefined}>
            {isWaiting ? 'Change it' : 'Retry with this'}
          </button>
        </div>
      </form>
    </Modal>
  );
}
