import type { JSX } from 'preact';
import type { Move } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { Time } from '../text/time.tsx';
import { Count, FirstLine, Maybe } from '../text/words.tsx';

interface MovesProps {
  readonly of: readonly Move[];
  /** Whether the states have names of the program, which have no colours. */
  readonly isPlain?: boolean;
}

type Row = Move & { readonly index: number };

/** Every transition of a job or an actor, newest first. Empty columns are left out. */
export function Moves({ of, isPlain = false }: MovesProps): JSX.Element {
  const columns: readonly Column<Row>[] = [
    { title: 'When', of: ({ at }) => <Time at={at} /> },
    { title: 'From', of: ({ from }) => <Maybe of={from} /> },
    { title: 'To', of: ({ to }) => (isPlain ? <strong>{to}</strong> : <Badge status={to} />) },
    { title: 'Reason', of: ({ reason }) => reason },
    ...(of.some(({ attempt }) => attempt > 0) ? [ATTEMPT] : []),
    ...(of.some(({ worker }) => typeof worker === 'string') ? [WORKER] : []),
    ...(of.some(({ error }) => error !== null) ? [ERROR] : []),
  ];
  return (
    <Table
      caption="Every move, newest first"
      rows={of.map((move, index) => ({ ...move, index })).reverse()}
      keyOf={({ index }) => String(index)}
      columns={columns}
    />
  );
}

const ATTEMPT: Column<Row> = { title: 'Attempt', align: 'right', of: ({ attempt }) => <Count of={attempt} isExact /> };
const WORKER: Column<Row> = { title: 'Worker', of: ({ worker }) => <Maybe of={worker} /> };
const ERROR: Column<Row> = { title: 'Error', of: ({ error }) => <FirstLine of={error} /> };
