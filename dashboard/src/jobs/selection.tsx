import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import type { Column } from '../parts/table.tsx';

interface Row {
  readonly id: string;
}

export interface Selection<T> {
  readonly ids: readonly string[];
  readonly clear: () => void;
  /** The column in which rows are chosen. */
  readonly column: Column<T>;
}

/**
 * Rows that the user has chosen: one by a click, a range by a click with shift, or all shown rows.
 * @param of  the list; another list clears the choice
 */
export function useSelection<T extends Row>(rows: readonly T[], of: string): Selection<T> {
  const [state, setState] = useState<{ of: string; ids: ReadonlySet<string> }>({ of, ids: new Set() });
  const last = useRef<string | undefined>(undefined);
  const chosen = state.of === of ? state.ids : NONE;
  const set = (ids: Iterable<string>): void => setState({ of, ids: new Set(ids) });
  const toggle = (id: string, isOn: boolean, isRange: boolean): void => {
    const among = isRange ? between(rows, last.current, id) : [id];
    last.current = id;
    set(isOn ? [...chosen, ...among] : [...chosen].filter((one) => !among.includes(one)));
  };
  const isAll = rows.length > 0 && rows.every(({ id }) => chosen.has(id));
  return {
    ids: [...chosen],
    clear: () => set([]),
    column: {
      title: 'Selected',
      isPick: true,
      head: (
        <input
          type="checkbox"
          aria-label="Select all that are shown"
          checked={isAll}
          onChange={() => set(isAll ? [] : rows.map(({ id }) => id))}
        />
      ),
      of: ({ id }) => <Box id={id} isOn={chosen.has(id)} toggle={toggle} />,
    },
  };
}

const NONE: ReadonlySet<string> = new Set();

interface BoxProps {
  readonly id: string;
  readonly isOn: boolean;
  readonly toggle: (id: string, isOn: boolean, isRange: boolean) => void;
}

function Box({ id, isOn, toggle }: BoxProps): JSX.Element {
  return (
    <input
      type="checkbox"
      aria-label={`Select ${id}`}
      checked={isOn}
      onClick={(event) => toggle(id, event.currentTarget.checked, event.shiftKey)}
    />
  );
}

function between(rows: readonly Row[], from: string | undefined, to: string): readonly string[] {
  const ends = [rows.findIndex(({ id }) => id === from), rows.findIndex(({ id }) => id === to)].sort((a, b) => a - b);
  const [first = -1, last = -1] = ends;
  return first < 0 ? [to] : rows.slice(first, last + 1).map(({ id }) => id);
}
