import type { ComponentChildren, JSX } from 'preact';
import { Icon } from './icon.tsx';

export interface Column<T> {
  readonly title: string;
  readonly of: (row: T) => ComponentChildren;
  readonly align?: 'right';
  /** Whether the column has the actions of a row. It is always visible, however wide the table is. */
  readonly isAction?: boolean;
  /** Whether rows are chosen in this column. */
  readonly isPick?: boolean;
  /** Shown instead of the title, which screen readers still read. */
  readonly head?: ComponentChildren;
  /** The name of the order by this column. */
  readonly sort?: string;
}

/** The order of a list, and the function that chooses another one. */
export interface Order {
  readonly by: string;
  readonly isDown: boolean;
  readonly choose: (by: string) => void;
}

interface TableProps<T> {
  readonly caption: string;
  readonly rows: readonly T[];
  readonly columns: readonly Column<T>[];
  readonly keyOf: (row: T) => string;
  readonly order?: Order;
}

/**
 * A list, also for screen readers: a caption, and headers that name the columns. On a narrow screen each row is a card, and the header of
 * each cell is next to it. The roles are written here because a browser removes them from tables that are drawn in another way.
 */
export function Table<T>({ caption, rows, columns, keyOf, order }: TableProps<T>): JSX.Element {
  return (
    // If the table is wider than the screen, the arrow keys can scroll it too.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a place that scrolls must be reached by keyboard
    <div class="table" role="group" aria-label={caption} tabIndex={0}>
      <table role="table">
        <caption class="hidden">{caption}</caption>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map((column) => (
              <Header key={column.title} of={column} order={order} />
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map((row) => (
            <tr key={keyOf(row)} role="row">
              {columns.map((column) => (
                <td key={column.title} role="cell" class={classOf(column)} data-title={column.title}>
                  {column.of(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface HeaderProps<T> {
  readonly of: Column<T>;
  readonly order: Order | undefined;
}

function Header<T>({ of, order }: HeaderProps<T>): JSX.Element {
  const { title, sort } = of;
  if (order === undefined || sort === undefined)
    return (
      <th role="columnheader" scope="col" class={classOf(of)}>
        {of.head ?? title}
      </th>
    );
  const isBy = order.by === sort;
  return (
    <th
      role="columnheader"
      scope="col"
      class={classOf(of)}
      aria-sort={isBy ? (order.isDown ? 'descending' : 'ascending') : 'none'}
    >
      <button type="button" class="sort" onClick={() => order.choose(sort)}>
        {title}
        {isBy && <Icon name={order.isDown ? 'down' : 'up'} size={12} />}
      </button>
    </th>
  );
}

function classOf<T>({ align, isAction = false, isPick = false }: Column<T>): string {
  return [align, isAction ? 'act' : undefined, isPick ? 'pick' : undefined]
    .filter((one) => one !== undefined)
    .join(' ');
}
