import type { JSX } from 'preact';
import { can, send } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import { useResource } from '../data/resource.ts';
import type { Actor, ActorType, List } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Example, Head, Loaded } from '../parts/card.tsx';
import { Icon } from '../parts/icon.tsx';
import { ShowMore, useLongList } from '../parts/more.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { attempt } from '../parts/toast.tsx';
import { filter, query, urlOf } from '../router.ts';
import { CopyAs, curlOf, shellWord } from '../text/copy.tsx';
import { count } from '../text/format.ts';
import { Name } from '../text/name.tsx';
import { Time } from '../text/time.tsx';
import { visibleName } from '../text/visible.ts';
import { FirstLine, None } from '../text/words.tsx';
import { MachineGraph } from './machine.tsx';

const STATUSES = ['running', 'due', 'napping', 'hibernating', 'backing off', 'paused', 'held', 'final'];

/** The types with their machines, and the actors of one type. */
export function ActorsPage(): JSX.Element {
  const types = useResource<List<ActorType>>('actor-types');
  const wanted = query.value.get('type') ?? '';
  const type = types.data?.items.find(({ name }) => name === wanted) ?? types.data?.items[0];
  return (
    <>
      <Head title="Actors" about="State machines, and the actors in each of their states." />
      <Loaded of={types}>
        {({ items }) =>
          items.length === 0 ? (
            <section class="card">
              <Empty title="No type of actors is known yet">
                A program registers its types when it first uses them:
                <Example>{`const Server = actor('server', {
  initial: 'booting',
  states: {
    booting: state({ to: ['running'], run: async (a) => a.to('running') }),
    running: state({ to: [], every: '30s', run: async (a) => a.stay() }),
  },
});
const actors = createActors(engine, [Server]);
await actors.create(Server, { size: 'small' });`}</Example>
              </Empty>
            </section>
          ) : (
            <>
              <div class="tabs" role="group" aria-label="Type">
                {items.map(({ name, counts }) => (
                  <button
                    key={name}
                    type="button"
                    aria-pressed={name === type?.name}
                    onClick={() => filter({ type: name, state: undefined })}
                  >
                    <Name of={name} />
                    <span class="count">{count(Object.values(counts).reduce((sum, n) => sum + n, 0))}</span>
                  </button>
                ))}
              </div>
              {type !== undefined && <Type of={type} />}
            </>
          )
        }
      </Loaded>
      {type !== undefined && <Instances type={type} />}
    </>
  );
}

function Type({ of: type }: { readonly of: ActorType }): JSX.Element {
  const change = async (verb: string): Promise<void> => {
    await attempt(
      async () => (await send<{ done: string }>('POST', `actor-types/${encodeURIComponent(type.name)}/${verb}`)).done,
    );
    refresh();
  };
  return (
    <Card
      title={type.name}
      actions={
        <>
          {type.paused && <Badge status="paused" />}
          <span class="muted">
            {type.workers} {type.workers === 1 ? 'worker' : 'workers'}
          </span>
          <a
            href={urlOf(`api/v1/actor-types/${encodeURIComponent(type.name)}/diagram?counts=true`)}
            download={`${type.name}.mmd`}
          >
            Mermaid
          </a>
          {can('actor:pause') && (
            <button
              type="button"
              class={type.paused ? 'primary' : ''}
              onClick={() => void change(type.paused ? 'resume' : 'pause')}
            >
              <Icon name={type.paused ? 'play' : 'pause'} size={13} />
              {type.paused ? 'Resume' : 'Pause'}
            </button>
          )}
        </>
      }
    >
      <MachineGraph machine={type.machine} counts={type.counts} paused={type.pausedStates} type={type.name} />
    </Card>
  );
}

function Instances({ type }: { readonly type: ActorType }): JSX.Element {
  const given = query.value;
  const [state, status] = [given.get('state') ?? '', given.get('status') ?? ''];
  const isFinal = given.get('final') === 'true';
  const asked = `actors?${new URLSearchParams({ type: type.name, ...(state === '' ? {} : { state }), ...(status === '' ? {} : { status }), final: String(isFinal) })}`;
  const { page, rows, next } = useLongList<Actor>(asked);
  return (
    <Card
      title={`Actors of type ${type.name}`}
      actions={<CopyAs of={elsewhere({ type: type.name, state, status, final: isFinal }, asked)} />}
    >
      <div class="body filters">
        <select aria-label="State" value={state} onChange={(event) => filter({ state: event.currentTarget.value })}>
          <option value="">Any state</option>
          {Object.keys(type.machine.states).map((name) => (
            <option key={name} value={name}>
              {visibleName(name)}
            </option>
          ))}
        </select>
        <select aria-label="Status" value={status} onChange={(event) => filter({ status: event.currentTarget.value })}>
          <option value="">Any status</option>
          {STATUSES.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <button type="button" aria-pressed={isFinal} onClick={() => filter({ final: isFinal ? undefined : 'true' })}>
          {isFinal ? 'Without those that are final' : 'Also those that are final'}
        </button>
      </div>
      <Loaded of={page}>
        {() =>
          rows.length === 0 ? (
            <Empty title="There is none">None of this type is in such a state.</Empty>
          ) : (
            <>
              <Table caption="Actors" rows={rows} keyOf={({ id }) => id} columns={COLUMNS} />
              <ShowMore next={next} />
            </>
          )
        }
      </Loaded>
    </Card>
  );
}

const COLUMNS: readonly Column<Actor>[] = [
  { title: 'Actor', of: ({ id }) => <a href={`actors/${id}`}>{id}</a> },
  { title: 'State', of: ({ state }) => <strong>{state}</strong> },
  { title: 'Status', of: ({ status }) => <Badge status={status} /> },
  { title: 'Key', of: ({ key }) => (key === null ? <None /> : <Name of={key} />) },
  { title: 'Parent', of: ({ parent }) => (parent === null ? <None /> : <a href={`actors/${parent}`}>{parent}</a>) },
  { title: 'Entered', of: ({ enteredAt }) => <Time at={enteredAt} /> },
  { title: 'Wakes', of: ({ wakeAt }) => <Time at={wakeAt} /> },
  { title: 'Error', of: ({ error }) => <FirstLine of={error} /> },
];

function elsewhere(
  { final, ...words }: Readonly<Record<string, string | boolean>>,
  asked: string,
): Record<string, string> {
  const given = Object.entries(words).filter(([, word]) => word !== '');
  const options = given.map(([name, word]) => ` --${name} ${shellWord(String(word))}`).join('');
  return {
    CLI: `pawl actor list${options}${final === true ? ' --final' : ''}`,
    curl: curlOf(asked),
    TypeScript: `await createActorAdmin(engine).list(${JSON.stringify({ ...Object.fromEntries(given), ...(final === true ? { final } : {}) })})`,
  };
}
