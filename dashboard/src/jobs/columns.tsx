import type { JSX } from 'preact';
import { Menu } from '../parts/menu.tsx';
import type { Column } from '../parts/table.tsx';
import { filter, query } from '../router.ts';

/** The columns that the address names, or the usual ones if it names none. The first column is always shown. */
export function chosen<T>(all: readonly Column<T>[], usual: readonly string[]): readonly Column<T>[] {
  const asked = query.value.get('columns')?.split(',') ?? usual;
  return all.filter(({ title }, index) => index === 0 || asked.includes(title));
}

interface ColumnsProps<T> {
  readonly all: readonly Column<T>[];
  readonly usual: readonly string[];
}

/** Chooses the columns of a list. The choice is in the address. */
export function Columns<T>({ all, usual }: ColumnsProps<T>): JSX.Element {
  const shown = new Set(chosen(all, usual).map(({ title }) => title));
  const toggle = (title: string): void => {
    const wanted = all.map((column) => column.title).filter((one) => shown.has(one) !== (one === title));
    const isUsual = all.every(
      (column, index) => index === 0 || wanted.includes(column.title) === usual.includes(column.title),
    );
    filter({ columns: isUsual ? undefined : wanted.join() });
  };
  return (
    <Menu title="Columns" icon="columns" isSticky>
      {all.slice(1).map(({ title }) => (
        <label key={title}>
          <input type="checkbox" checked={shown.has(title)} onChange={() => toggle(title)} />
          {title}
        </label>
      ))}
      <hr />
      <button type="button" onClick={() => filter({ columns: undefined })}>
        As usual
      </button>
    </Menu>
  );
}
