import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { get, getText, sendText } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import { type Problems, payloadText, pretty, problemOf, problemOfJson } from '../data/payload.ts';
import type { Job, List, Queue } from '../data/types.ts';
import { Modal } from '../parts/dialog.tsx';
import { Field, Problem } from '../parts/field.tsx';
import { say } from '../parts/toast.tsx';
import { queueUrl } from '../router.ts';
import { duration } from '../text/format.ts';
import { Name } from '../text/name.tsx';
import { visibleName } from '../text/visible.ts';
import { fromField, zoneName } from '../text/zone.ts';

interface AddJobProps {
  readonly queue: Queue;
  /** A job whose payload is copied into the form. */
  readonly like?: string | undefined;
  readonly onClose: () => void;
}

/** Adds a job by hand. An error is shown below its field. */
export function AddJob({ queue, like, onClose }: AddJobProps): JSX.Element {
  const [payload, setPayload] = useState('{}');
  const [kind, setKind] = useState(queue.kinds[0] ?? '');
  const [problems, setProblems] = useState<Problems>({});
  const take = async (id: string): Promise<void> => setPayload(pretty(await getText(`jobs/${id}/payload`)));
  const guard = (work: Promise<void>): void => void work.catch((error: unknown) => setProblems(problemOf(error)));
  useEffect(() => {
    if (like !== undefined) guard(copyJob(like, setKind).then(() => take(like)));
  }, [like]);
  const add = async (form: FormData): Promise<void> => {
    const wrong = problemOfJson(payload);
    setProblems(wrong);
    if (Object.keys(wrong).length > 0) return;
    const path = `${queueUrl(queue.name)}/jobs`;
    const { id, duplicate } = await sendText<{ id: string; duplicate: boolean }>(path, bodyOf(form, kind, payload));
    say(duplicate ? `job ${id} of this key was there already` : `job ${id} is added`);
    refresh();
    onClose();
  };
  return (
    <Modal title="Add a job" onClose={onClose}>
      <form
        method="dialog"
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          guard(add(new FormData(event.currentTarget)));
        }}
      >
        <h2>
          Add a job to <Name of={queue.name} />
        </h2>
        <Field title="Kind" problem={problems['kind']}>
          <select name="kind" value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
            {queue.kinds.map((one) => (
              <option key={one} value={one}>
                {visibleName(one)}
              </option>
            ))}
          </select>
        </Field>
        <Field title="Payload, as JSON" problem={problems['payload']}>
          <textarea
            name="payload"
            spellcheck={false}
            value={payload}
            aria-invalid={problems['payload'] !== undefined}
            onInput={(event) => setPayload(event.currentTarget.value)}
          />
        </Field>
        <button type="button" class="link small" onClick={() => guard(newest(queue.name, kind).then(take))}>
          Take the payload of the newest job of this kind
        </button>
        <Field title="Key, if jobs of it are to run one after another" problem={problems['key']}>
          <input name="key" />
        </Field>
        {(queue.perGroup !== null || queue.rate !== null) && (
          <Field title={`Group, of which ${limitsOf(queue)}`} problem={problems['group']}>
            <input name="group" maxLength={100} />
          </Field>
        )}
        <div class="pair">
          <Field title="Priority: lower runs first" problem={problems['priority']}>
            <input name="priority" type="number" min={-32768} max={32767} defaultValue="0" />
          </Field>
          <Field title={`Not before, ${zoneName()}`} problem={problems['runAt']}>
            <input name="runAt" type="datetime-local" step="1" />
          </Field>
        </div>
        {problems[''] !== undefined && <Problem text={problems['']} />}
        <div class="actions">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            Add
          </button>
        </div>
      </form>
    </Modal>
  );
}

/** The payload is sent as it was written, because JSON.parse would round long numbers. */
function bodyOf(form: FormData, kind: string, payload: string): string {
  const field = (name: string): string => {
    const value = form.get(name);
    return typeof value === 'string' ? value.trim() : '';
  };
  const [key, group, runAt] = [field('key'), field('group'), field('runAt')];
  const rest = {
    kind,
    priority: Number(field('priority')),
    ...(key === '' ? {} : { key }),
    ...(group === '' ? {} : { group }),
    ...(runAt === '' ? {} : { runAt: fromField(runAt) }),
  };
  return `${JSON.stringify(rest).slice(0, -1)},"payload":${payloadText(payload)}}`;
}

async function newest(queue: string, kind: string): Promise<string> {
  const { items } = await get<List<Job>>(`jobs?${new URLSearchParams({ q: `kind:"${kind}"`, queue, limit: '1' })}`);
  const [job] = items;
  if (job === undefined) throw new Error(`there is no job of kind "${kind}" yet`);
  return job.id;
}

async function copyJob(id: string, setKind: (kind: string) => void): Promise<void> {
  setKind((await get<Job>(`jobs/${id}`)).kind);
}

/** The limits that a queue has for each group. */
function limitsOf({ perGroup, rate }: Queue): string {
  const atOnce = perGroup === null ? [] : [`at most ${perGroup} run at a time`];
  const begun = rate === null ? [] : [`at most ${rate.limit} begin in ${duration(rate.perMs)}`];
  return [...atOnce, ...begun].join(', and ');
}
