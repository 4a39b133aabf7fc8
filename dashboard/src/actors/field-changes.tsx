import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { type Difference, differences } from '../data/diff.ts';
import type { ActorDetail, ActorFieldsChange } from '../data/types.ts';
import { ShowMore, useLongList } from '../parts/more.tsx';
import { filter, query } from '../router.ts';
import { Time } from '../text/time.tsx';

interface Change {
  /** The turns that made the change, `from` to `to`: between two polls there may be several. */
  readonly from: number;
  readonly to: number;
  /** The state in which the turn ran, if it is known. */
  readonly state: string | undefined;
  readonly at: string;
  readonly of: readonly Difference[];
}

/** The fields at one moment. */
interface Moment {
  /** In the address: the turn after which the fields had these values, or `first` for the time before the oldest shown turn. */
  readonly id: string;
  readonly title: string;
  readonly fields: unknown;
}

const SEEN = 20;

/** The changes of the fields by turns: as far back as the type keeps them, or else since the page was opened. */
export function FieldChanges({ of }: { readonly of: ActorDetail }): JSX.Element {
  const { rows, next } = useLongList<ActorFieldsChange>(`actors/${of.id}/fields`);
  const seen = useSeenChanges(of);
  const changes = rows.length > 0 ? rows.map(changeOf) : seen;
  return (
    <>
      <h3 class="over">What its turns change</h3>
      {rows.length > 0 && <Compare of={rows} />}
      {changes.length === 0 ? (
        <p class="small muted">
          Nothing since this page was opened; a change of a turn shows here as it is made. To see what earlier turns
          changed, declare how long its type keeps that: <code>fieldHistory: '7d'</code>.
        </p>
      ) : (
        <ul class="changes" aria-label="What its turns change, newest first">
          {changes.map(({ from, to, state, at, of: found }) => (
            <li key={to}>
              <span class="muted small">
                {from === to ? `Turn ${to}` : `Turns ${from} to ${to}`}
                {state !== undefined && ` in ${state}`}, <Time at={at} />
              </span>
              <Differences of={found} />
            </li>
          ))}
        </ul>
      )}
      <ShowMore next={next} />
    </>
  );
}

function changeOf({ epoch, state, at, before, after }: ActorFieldsChange): Change {
  return { from: epoch, to: epoch, state, at, of: differences(before, after) };
}

/** The differences between two moments, which the address names. */
function Compare({ of: rows }: { readonly of: readonly ActorFieldsChange[] }): JSX.Element {
  const moments = momentsOf(rows);
  const [from, to] = (['from', 'to'] as const).map((name) => moments.find(({ id }) => id === query.value.get(name)));
  return (
    <div class="compare">
      <div class="filters">
        <Choice name="from" label="Compare the fields" of={moments} chosen={from} />
        <Choice name="to" label="with those" of={moments} chosen={to} />
      </div>
      {from !== undefined && to !== undefined && (
        <section aria-label={`From ${from.title} to ${to.title}`}>
          <Differences of={differences(from.fields, to.fields)} />
        </section>
      )}
    </div>
  );
}

/** The newest moment is first, as in the list of turns. */
function momentsOf(rows: readonly ActorFieldsChange[]): readonly Moment[] {
  const after = rows.map(
    ({ epoch, after: fields }): Moment => ({ id: String(epoch), title: `after turn ${epoch}`, fields }),
  );
  const oldest = rows.at(-1);
  if (oldest === undefined) return after;
  return [...after, { id: 'first', title: `before turn ${oldest.epoch}`, fields: oldest.before }];
}

interface ChoiceProps {
  readonly name: 'from' | 'to';
  readonly label: string;
  readonly of: readonly Moment[];
  readonly chosen: Moment | undefined;
}

function Choice({ name, label, of, chosen }: ChoiceProps): JSX.Element {
  return (
    <select
      aria-label={label}
      value={chosen?.id ?? ''}
      onChange={(event) => filter({ [name]: event.currentTarget.value })}
    >
      <option value="">{label}…</option>
      {of.map(({ id, title }) => (
        <option key={id} value={id}>
          {title}
        </option>
      ))}
    </select>
  );
}

function Differences({ of }: { readonly of: readonly Difference[] }): JSX.Element {
  if (of.length === 0) return <p class="small muted">Nothing differs.</p>;
  return (
    <dl class="facts">
      {of.map(({ path, before, after }) => (
        <>
          <dt>
            <code>{path || 'all'}</code>
          </dt>
          <dd>
            {before !== undefined && <del>{JSON.stringify(before)}</del>}{' '}
            {after !== undefined && <ins>{JSON.stringify(after)}</ins>}
          </dd>
        </>
      ))}
    </dl>
  );
}

interface Watch {
  readonly id: string;
  readonly epoch: number;
  readonly fields: unknown;
  readonly changes: readonly Change[];
}

/** The changes since the page was opened. */
function useSeenChanges({ id, epoch, fields }: ActorDetail): readonly Change[] {
  const [seen, setSeen] = useState<Watch>({ id, epoch, fields, changes: [] });
  useEffect(() => {
    setSeen((old) => {
      if (old.id !== id) return { id, epoch, fields, changes: [] };
      const of = differences(old.fields, fields);
      if (of.length === 0) return { ...old, epoch, fields };
      const from = Math.min(old.epoch + 1, epoch);
      const change = { from, to: epoch, state: undefined, at: new Date().toISOString(), of };
      return { id, epoch, fields, changes: [change, ...old.changes].slice(0, SEEN) };
    });
  }, [id, epoch, fields]);
  return seen.changes;
}
