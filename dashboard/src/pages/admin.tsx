import type { JSX } from 'preact';
import { can } from '../api.ts';
import { bytes, duration } from '../format.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Head, Loaded } from '../parts/card.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';
import { useResource } from '../resource.ts';
import { urlOf } from '../router.ts';
import type { Admin, Audit, Page } from '../types.ts';

/** The database, the schema, this process, and what people did. */
export function AdminPage(): JSX.Element {
  const admin = useResource<Admin>('admin', 10_000);
  return (
    <>
      <Head
        title="Admin"
        about="The database, the schema, this process, and what people did."
        actions={<a href={urlOf('api/v1/openapi.json')}>OpenAPI document</a>}
      />
      <Loaded of={admin}>
        {({ server, process, migrations, tables }) => (
          <>
            <div class="columns">
              <Card title="Database">
                <Facts
                  of={[
                    ['Postgres', server.version],
                    ['Database', `${server.database}, as ${server.user}`],
                    ['Connections', `${server.connections} of ${server.maxConnections}`],
                    ['Round trip', duration(server.roundTripMs)],
                    [
                      'Clock',
                      `${duration(Math.abs(server.clockAheadMs))} ${server.clockAheadMs < 0 ? 'behind' : 'ahead of'} this machine`,
                    ],
                    [
                      'Oldest transaction',
                      server.oldestTransaction === null
                        ? 'none is open'
                        : `${duration(server.oldestTransaction.ageMs)}, backend ${server.oldestTransaction.pid} (${server.oldestTransaction.application || 'no name'})`,
                    ],
                    ['Pooler', server.hasPooler ? 'stands before it' : 'none seen'],
                    ['Writable', server.isReadOnly ? 'no' : 'yes'],
                  ]}
                />
              </Card>
              <Card title="This process">
                <Facts
                  of={[
                    ['Pawl', process.version],
                    ['Node', process.node],
                    ['Process', process.pid],
                    ['Started', <Time key="started" at={process.startedAt} />],
                    ['Memory', bytes(process.rssBytes)],
                    ['Watchers', process.watchers],
                  ]}
                />
              </Card>
            </div>
            <Card
              title="Migrations"
              actions={
                <Badge status={migrations.state}>
                  {migrations.state === 'current' ? 'up to date' : migrations.state}
                </Badge>
              }
            >
              {migrations.problem !== null && <p class="error">{migrations.problem}</p>}
              <details class="body">
                <summary>
                  {migrations.applied.length} applied, {migrations.pending.length} pending
                </summary>
                <Table
                  caption="Migrations"
                  rows={migrations.applied}
                  keyOf={({ line, number }) => `${line} ${number}`}
                  columns={[
                    { title: 'Line', of: ({ line }) => line },
                    { title: 'Number', align: 'right', of: ({ number }) => number },
                    { title: 'Name', of: ({ name }) => name },
                    { title: 'Applied', of: ({ appliedAt }) => <Time at={appliedAt} /> },
                  ]}
                />
              </details>
            </Card>
            <Card title="Tables">
              <Table
                caption="Tables, the largest first"
                rows={tables}
                keyOf={({ name }) => name}
                columns={[
                  { title: 'Table', of: ({ name }) => <code>{name}</code> },
                  { title: 'Size, with indexes', align: 'right', of: (table) => bytes(table.bytes) },
                  { title: 'Rows', align: 'right', of: ({ rows }) => rows.toLocaleString('en') },
                  { title: 'Dead rows', align: 'right', of: ({ deadRows }) => deadRows.toLocaleString('en') },
                  { title: 'Vacuumed', of: ({ vacuumedAt }) => <Time at={vacuumedAt} /> },
                ]}
              />
            </Card>
          </>
        )}
      </Loaded>
      {can('audit:read') && <AuditLog />}
    </>
  );
}

function Facts({ of }: { readonly of: readonly (readonly [string, JSX.Element | string | number])[] }): JSX.Element {
  return (
    <dl class="facts body">
      {of.map(([name, value]) => (
        <>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </>
      ))}
    </dl>
  );
}

function AuditLog(): JSX.Element {
  const audit = useResource<Page<Audit>>('audit', 5000);
  return (
    <Card title="What people did">
      <Loaded of={audit}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title="Nobody has changed anything here" />
          ) : (
            <Table
              caption="Audit, newest first"
              rows={items}
              keyOf={({ id }) => id}
              columns={[
                { title: 'When', of: ({ at }) => <Time at={at} /> },
                { title: 'Who', of: ({ who }) => who },
                { title: 'From', of: ({ remote }) => remote ?? <span class="muted">–</span> },
                { title: 'Action', of: ({ action }) => action },
                { title: 'On', of: ({ target }) => <span class="wrap">{target}</span> },
                {
                  title: 'Outcome',
                  of: ({ outcome, error }) => (
                    <span title={error ?? ''}>
                      <Badge status={outcome} />
                    </span>
                  ),
                },
              ]}
            />
          )
        }
      </Loaded>
    </Card>
  );
}
