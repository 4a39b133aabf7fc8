import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Gauge } from '../charts/spark.tsx';
import { can } from '../data/api.ts';
import { useResource } from '../data/resource.ts';
import type { Admin, Audit, List } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Head, Loaded } from '../parts/card.tsx';
import { Facts } from '../parts/facts.tsx';
import { Table } from '../parts/table.tsx';
import { urlOf } from '../router.ts';
import { CopyAs, curlOf } from '../text/copy.tsx';
import { bytes, duration, plural } from '../text/format.ts';
import { Time } from '../text/time.tsx';
import { Count, Maybe } from '../text/words.tsx';

/** The database, the schema, this process, and the actions of people. */
export function AdminPage(): JSX.Element {
  const admin = useResource<Admin>('admin', 10_000);
  return (
    <>
      <Head
        title="Admin"
        about="The database, the schema, this process, and what people did."
        actions={
          <>
            <CopyAs of={{ CLI: 'pawl doctor', curl: curlOf('admin'), TypeScript: 'await engine.status()' }} />
            <a href={urlOf('api/v1/openapi.json')}>OpenAPI document</a>
          </>
        }
      />
      <Loaded of={admin}>
        {({ server, process, migrations, tables }) => (
          <>
            <div class="columns">
              <Card title="Database">
                <div class="body">
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
                </div>
              </Card>
              <Card title="This process">
                <div class="body">
                  <Facts
                    of={[
                      ['Pawl', process.version],
                      ['Node', process.node],
                      ['Process', process.pid],
                      ['Started', <Time at={process.startedAt} />],
                      ['Memory', bytes(process.rssBytes)],
                      ['Watchers', process.watchers],
                    ]}
                  />
                </div>
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
            <Tables of={tables} />
          </>
        )}
      </Loaded>
      {can('audit:read') && <AuditLog />}
    </>
  );
}

/** The number of tables that are shown at first. The largest tables use most of the space; the small ones are shown on request. */
const FIRST = 10;

function Tables({ of }: { readonly of: Admin['tables'] }): JSX.Element {
  const [isWhole, setWhole] = useState(false);
  const total = of.reduce((sum, table) => sum + table.bytes, 0);
  const largest = Math.max(1, ...of.map((table) => table.bytes));
  return (
    <Card
      title="Tables"
      actions={
        <span class="muted">
          {plural(of.length, 'table')}, {bytes(total)} with indexes
        </span>
      }
    >
      <Table
        caption="Tables, the largest first"
        rows={isWhole ? of : of.slice(0, FIRST)}
        keyOf={({ name }) => name}
        columns={[
          { title: 'Table', of: ({ name }) => <code>{name}</code> },
          {
            title: 'Size',
            of: (table) => <Gauge part={table.bytes} of={largest} label={`Size of ${table.name}`} isPlain />,
          },
          { title: 'With indexes', align: 'right', of: (table) => bytes(table.bytes) },
          { title: 'Rows', align: 'right', of: ({ rows }) => <Count of={rows} isExact /> },
          { title: 'Dead rows', align: 'right', of: ({ deadRows }) => <Count of={deadRows} isExact /> },
          { title: 'Vacuumed', of: ({ vacuumedAt }) => <Time at={vacuumedAt} /> },
        ]}
      />
      {of.length > FIRST && (
        <div class="bulk-bar">
          <button type="button" aria-expanded={isWhole} onClick={() => setWhole(!isWhole)}>
            {isWhole ? `The largest ${FIRST}` : `All ${of.length}`}
          </button>
        </div>
      )}
    </Card>
  );
}

function AuditLog(): JSX.Element {
  const audit = useResource<List<Audit>>('audit', 5000);
  return (
    <Card title="What people did">
      <Loaded of={audit}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title="No change was made here yet">
              Each change by HTTP, and each that was refused, gets a line with its author.
            </Empty>
          ) : (
            <Table
              caption="Audit, newest first"
              rows={items}
              keyOf={({ id }) => id}
              columns={[
                { title: 'When', of: ({ at }) => <Time at={at} /> },
                { title: 'Who', of: ({ who }) => who },
                { title: 'From', of: ({ remote }) => <Maybe of={remote} /> },
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
