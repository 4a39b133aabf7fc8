import type { JSX } from 'preact';
import { can, send } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import { useResource } from '../data/resource.ts';
import type { List, LockDetail, LockPast } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Head, Loaded } from '../parts/card.tsx';
import { confirm } from '../parts/dialog.tsx';
import { Icon } from '../parts/icon.tsx';
import { OutLinks } from '../parts/out-links.tsx';
import { Table } from '../parts/table.tsx';
import { attempt } from '../parts/toast.tsx';
import { query } from '../router.ts';
import { CopyAs, curlOf, inNamespace, shellWord, sqlText } from '../text/copy.tsx';
import { duration } from '../text/format.ts';
import { Time } from '../text/time.tsx';
import { OwnerOf } from './owner.tsx';

/** One lock: its holders, its waiters, and its holders in the past. */
export function LockPage(): JSX.Element {
  const name = query.value.get('name') ?? '';
  const namespace = query.value.get('namespace') ?? '';
  const of = new URLSearchParams({ ...(namespace === '' ? {} : { namespace }), name });
  const lock = useResource<LockDetail>(`locks/one?${of}`);
  const past = useResource<List<LockPast>>(`locks/one/history?${of}`, 5000);
  const isHeld = (lock.data?.holders.length ?? 0) > 0;
  const { option, given } = inNamespace(namespace);
  return (
    <>
      <Head
        title={name}
        about={
          <>
            {lock.data && <Badge status={isHeld ? 'granted' : 'released'}>{isHeld ? 'held' : 'free'}</Badge>}{' '}
            {namespace === '' ? 'a lock' : `a lock of ${namespace}`}
          </>
        }
        actions={
          <>
            <CopyAs
              of={{
                CLI: `pawl lock show ${shellWord(name)}${option}`,
                SQL: `select * from pawl.lock where namespace = ${sqlText(namespace)} and name = ${sqlText(name)}`,
                curl: curlOf(`locks/one?${of}`),
                TypeScript: `await createLocks(engine${given}).explain(${JSON.stringify(name)})`,
              }}
            />
            <OutLinks of="lock" known={{ namespace, name }} />
            {isHeld && can('lock:break') && (
              <button type="button" class="danger" onClick={() => void breakLock(namespace, name)}>
                Break
              </button>
            )}
          </>
        }
      />
      <Loaded of={lock}>{(data) => <Standing of={data} />}</Loaded>
      <Card title="Before">
        <Loaded of={past}>
          {({ items }) =>
            items.length === 0 ? (
              <Empty title="It was not held before">
                Past holders are listed here for as long as the history of locks is kept.
              </Empty>
            ) : (
              <Table
                caption="Earlier holders, newest first"
                rows={items}
                keyOf={({ token }) => token}
                columns={[
                  { title: 'Token', align: 'right', of: ({ token }) => <code>{token}</code> },
                  { title: 'Holder', of: (holder) => <OwnerOf of={holder} /> },
                  { title: 'Granted', of: ({ grantedAt }) => <Time at={grantedAt} /> },
                  {
                    title: 'Held for',
                    align: 'right',
                    of: ({ grantedAt, endedAt }) =>
                      duration(new Date(endedAt).getTime() - new Date(grantedAt).getTime()),
                  },
                  { title: 'Ended', of: ({ outcome }) => <Badge status={outcome} /> },
                  { title: 'Reason', of: ({ reason }) => reason ?? <span class="muted">–</span> },
                ]}
              />
            )
          }
        </Loaded>
      </Card>
    </>
  );
}

function Standing({ of: { holders, waiters, guardedBy, blocking } }: { readonly of: LockDetail }): JSX.Element {
  return (
    <>
      <Card title="Holders">
        {holders.length === 0 ? (
          <Empty title="It is free" />
        ) : (
          <Table
            caption="Holders"
            rows={holders}
            keyOf={({ token }) => token}
            columns={[
              { title: 'Token', align: 'right', of: ({ token }) => <code>{token}</code> },
              { title: 'Mode', of: ({ mode }) => <Badge status={mode} /> },
              { title: 'Holder', of: (holder) => <OwnerOf of={holder} /> },
              { title: 'Since', of: ({ since }) => <Time at={since} /> },
              { title: 'Last heartbeat', of: ({ lastHeartbeatAt }) => <Time at={lastHeartbeatAt} /> },
              {
                title: 'Lease until',
                of: ({ expiresAt }) => (expiresAt === null ? 'released or broken' : <Time at={expiresAt} />),
              },
            ]}
          />
        )}
        {guardedBy.length > 0 && (
          <p class="body muted">
            Guarded by open transactions of backends {guardedBy.join(', ')}: until they end, no other caller gets the
            lock.
          </p>
        )}
      </Card>
      <Card title="Waiting, in the order in which they get it">
        {waiters.length === 0 ? (
          <Empty title="No caller waits">The next one gets it as soon as it is free.</Empty>
        ) : (
          <Table
            caption="Waiters"
            rows={waiters.map((waiter, index) => ({ ...waiter, place: index + 1 }))}
            keyOf={({ ticket }) => ticket}
            columns={[
              { title: 'Place', align: 'right', of: ({ place }) => place },
              { title: 'Mode', of: ({ mode }) => <Badge status={mode} /> },
              { title: 'Who', of: (waiter) => <OwnerOf of={waiter} /> },
              { title: 'Waits since', of: ({ since }) => <Time at={since} /> },
            ]}
          />
        )}
        {blocking.length > 0 && (
          <ul class="body reasons">
            {blocking.map((line) => (
              <li key={line}>
                <Icon name="arrow" />
                {line}
              </li>
            ))}
          </ul>
        )}
      </Card>
    </>
  );
}

async function breakLock(namespace: string, name: string): Promise<void> {
  const reason = await confirm({
    title: `Break ${name}`,
    text: 'Its holders lose the lock, and the next waiter gets it at once. The holders are notified, and their guards fail. But their work outside of the database goes on until they check.',
    verb: 'Break it',
    isDanger: true,
    typed: name,
    ask: { label: 'Reason, kept in the history and told to the holders', isRequired: true },
  });
  if (reason === undefined) return;
  await attempt(async () => {
    const { broken } = await send<{ broken: readonly unknown[] }>('POST', 'locks/break', {
      ...(namespace === '' ? {} : { namespace }),
      name,
      reason,
    });
    return `taken from ${broken.length === 1 ? 'its holder' : `${broken.length} holders`}`;
  });
  refresh();
}
