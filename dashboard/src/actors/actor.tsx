import type { JSX } from 'preact';
import { Lanes } from '../charts/lanes.tsx';
import { Moves } from '../charts/moves.tsx';
import { can, send } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import { useResource } from '../data/resource.ts';
import type { ActorDetail, ActorType, List, Move, Turn } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Example, Head, Loaded } from '../parts/card.tsx';
import { confirm } from '../parts/dialog.tsx';
import { type Fact, Facts, Reasons } from '../parts/facts.tsx';
import { Icon } from '../parts/icon.tsx';
import { ShowMore, useLongList } from '../parts/more.tsx';
import { OutLinks } from '../parts/out-links.tsx';
import { attempt } from '../parts/toast.tsx';
import { CopyAs, curlOf } from '../text/copy.tsx';
import { Name } from '../text/name.tsx';
import { Moment, Time } from '../text/time.tsx';
import { Trace } from '../text/words.tsx';
import { Fields } from './fields.tsx';
import { MachineGraph } from './machine.tsx';

/** One actor: its state, its fields, and the timers and semaphores that wake it. */
export function ActorPage({ id }: { readonly id: string }): JSX.Element {
  const actor = useResource<ActorDetail>(`actors/${id}`);
  return (
    <>
      <Head
        title={actor.data === undefined ? `Actor ${id}` : `${actor.data.type} ${id}`}
        about={
          actor.data && (
            <>
              <Badge status={actor.data.status} /> in <strong>{actor.data.state}</strong>, entered{' '}
              <Time at={actor.data.enteredAt} />
            </>
          )
        }
        actions={actor.data && <Actions of={actor.data} />}
      />
      <Loaded of={actor}>
        {(data) => (
          <>
            <Card title="Its machine">
              <MachineGraph machine={data.machine} current={data.state} history={data.history} />
            </Card>
            <div class="columns">
              <Card title="Why it does (not) run">
                <div class="body">
                  <Reasons of={[...data.explanation.reasons, ...data.explanation.advice].map((text) => ({ text }))} />
                  <Facts of={factsOf(data)} />
                </div>
              </Card>
              <div class="stack">
                <Card title="Semaphores">
                  <Semaphores of={data} />
                </Card>
                <Fields of={data} />
              </div>
            </div>
            {data.error !== null && (
              <Card title="Error of its last turn">
                <Trace text={data.error} />
              </Card>
            )}
            <Card title="History">
              <div class="body">
                <Lanes of={data.history} endedAt={data.finishedAt} />
              </div>
              <Past of={data.id} />
            </Card>
          </>
        )}
      </Loaded>
    </>
  );
}

function factsOf(of: ActorDetail): readonly Fact[] {
  const at = (time: string | null): JSX.Element | null => (time === null ? null : <Moment at={time} />);
  return [
    ['Key', of.key && <Name of={of.key} />],
    ['Parent', of.parent && <a href={`actors/${of.parent}`}>{of.parent}</a>],
    ['Children', of.openChildren > 0 ? <a href={`actors?parent=${of.id}`}>{of.openChildren} are not final</a> : null],
    ['Visit', of.visit],
    ['Turns', of.epoch],
    ['Failed in a row', failedInARow(of)],
    ['Messages', of.messages],
    ['Wakes', at(of.wakeAt)],
    ...Object.entries(of.timers).map(([name, when]): Fact => [`Timer ${name}`, at(when)]),
    ['Deadline', at(of.deadlineAt)],
    ['Created', at(of.createdAt)],
    ['Final', at(of.finishedAt)],
    ['Worker', of.worker && of.worker.process],
  ];
}

/** The number of failed attempts. A running turn counts as an attempt and has not failed. */
function failedInARow({ attempt, status }: ActorDetail): number {
  return status === 'running' ? Math.max(0, attempt - 1) : attempt;
}

function Semaphores({ of }: { readonly of: ActorDetail }): JSX.Element {
  const types = useResource<List<ActorType>>('actor-types', 60_000);
  const declared = types.data?.items.find(({ name }) => name === of.type)?.semaphores ?? [];
  const names = [...new Set([...declared, ...Object.keys(of.semaphores)])];
  const raise = async (semaphore: string): Promise<void> => {
    if (semaphore === 'destroy') return destroy(of.id);
    await attempt(async () => {
      const { raised: isRaised } = await send<{ raised: boolean }>('POST', `actors/${of.id}/incr`, { semaphore });
      return isRaised ? `${semaphore} is raised` : 'it is final: nothing was raised';
    });
    refresh();
  };
  if (names.length === 0)
    return (
      <Empty title="Its type has none">
        A type names the semaphores that wake its actors when they are raised:{' '}
        <Example>{`semaphores: ['restart', 'destroy'],`}</Example>
      </Empty>
    );
  return (
    <ul class="attention">
      {names.map((name) => (
        <li key={name}>
          <strong class="grow">{name}</strong>
          <span class={`count tone-${(of.semaphores[name] ?? 0) > 0 ? 'busy' : 'idle'}`}>
            {of.semaphores[name] ?? 0}
          </span>
          {can(name === 'destroy' ? 'actor:destroy' : 'actor:signal') && of.finishedAt === null && (
            <button type="button" onClick={() => void raise(name)}>
              Raise
            </button>
          )}
        </li>
      ))}
    </ul>
  );
}

function Actions({ of }: { readonly of: ActorDetail }): JSX.Element {
  const isPaused = of.pausedAt !== null;
  const change = async (): Promise<void> => {
    await attempt(
      async () => (await send<{ done: string }>('POST', `actors/${of.id}/${isPaused ? 'resume' : 'pause'}`)).done,
    );
    refresh();
  };
  return (
    <>
      <CopyAs
        of={{
          CLI: `pawl actor show ${of.id}`,
          SQL: `select * from pawl.actor where id = ${of.id}`,
          curl: curlOf(`actors/${of.id}`),
          TypeScript: `await createActorAdmin(engine).get(${JSON.stringify(of.id)})`,
        }}
      />
      <OutLinks
        of="actor"
        known={{
          id: of.id,
          type: of.type,
          state: of.state,
          key: of.key,
          from: of.createdAt,
          to: of.finishedAt ?? new Date().toISOString(),
        }}
      />
      {can('actor:pause') && of.finishedAt === null && (
        <button type="button" class={isPaused ? 'primary' : ''} onClick={() => void change()}>
          <Icon name={isPaused ? 'play' : 'pause'} size={13} />
          {isPaused ? 'Resume' : 'Pause'}
        </button>
      )}
      {can('actor:signal') && WAITING.has(of.status) && (
        <button type="button" onClick={() => void retry(of.id)}>
          Retry now
        </button>
      )}
      {can('actor:move') && of.finishedAt === null && (
        <button type="button" onClick={() => void move(of)}>
          Move…
        </button>
      )}
      {can('actor:work') && of.hasProgram && of.finishedAt === null && (
        <button type="button" onClick={() => void work(of.id)}>
          Run a turn
        </button>
      )}
      {can('actor:destroy') && of.finishedAt === null && of.machine.always['destroy'] !== undefined && (
        <button type="button" class="danger" onClick={() => void destroy(of.id)}>
          Destroy
        </button>
      )}
    </>
  );
}

/** The statuses in which a retry makes the next turn due before its time. */
const WAITING: ReadonlySet<string> = new Set(['backing off', 'napping', 'hibernating']);

async function retry(id: string): Promise<void> {
  await attempt(async () => {
    const { retried } = await send<{ retried: boolean }>('POST', `actors/${id}/retry`);
    return retried ? `actor ${id} is due now` : `a turn of actor ${id} runs just now`;
  });
  refresh();
}

/** Asks for the new state, then for the reason. */
async function move({ id, state: from, machine }: ActorDetail): Promise<void> {
  const states = Object.keys(machine.states).join(', ');
  const state = await confirm({
    title: `Move actor ${id}`,
    text: `It is in ${from}. Its states are ${states}.`,
    verb: 'Go on',
    ask: { label: 'To the state', isRequired: true },
  });
  if (state === undefined) return;
  const reason = await confirm({
    title: `Move actor ${id} to ${state}`,
    text: 'It changes its state at once, whatever its machine allows. If a turn runs now, its result is not written.',
    verb: 'Move it',
    isDanger: true,
    ask: { label: 'Reason, kept in its history', isRequired: true },
  });
  if (reason === undefined) return;
  await attempt(async () => (await send<{ done: string }>('POST', `actors/${id}/move`, { state, reason })).done);
  refresh();
}

/** Runs one turn by hand, even if the actor is not due or is paused. */
async function work(id: string): Promise<void> {
  await attempt(async () => {
    const { kind, from, to, error } = await send<Turn>('POST', `actors/${id}/work`);
    if (kind === 'failed') throw new Error(`the turn in ${from} failed: ${error}`);
    return kind === 'to' ? `one turn: ${from} → ${to}` : `one turn in ${from}: ${kind}`;
  });
  refresh();
}

async function destroy(id: string): Promise<void> {
  const answer = await confirm({
    title: `Destroy actor ${id}`,
    text: 'It ends, whatever its state is. This cannot be undone.',
    verb: 'Destroy it',
    isDanger: true,
    typed: id,
  });
  if (answer === undefined) return;
  await attempt(async () => {
    await send('POST', `actors/${id}/destroy`);
    return `actor ${id} is asked to end`;
  });
  refresh();
}

function Past({ of }: { readonly of: string }): JSX.Element {
  const { page, rows, next } = useLongList<Move>(`actors/${of}/history`);
  return (
    <Loaded of={page}>
      {() => (
        <>
          <Moves of={rows.toReversed()} isPlain />
          <ShowMore next={next} />
        </>
      )}
    </Loaded>
  );
}
