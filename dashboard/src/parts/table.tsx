import type { ComponentChildren, JSX } from 'preact';

export interface Column<T> {
  readonly title: string;
  readonly of: (row: T) => ComponentChildren;
  readonly align?: 'right';
}

interface TableProps<T> {
  readonly caption: string;
  readonly rows: readonly T[];
  readonly columns: readonly Column<T>[];
  readonly keyOf: (row: T) => string;
}

/** A list of things, also for whoever hears it: a caption, and headers that name the columns. */
export function Table<T>({ caption, rows, columns, keyOf }: TableProps<T>): JSX.Element {
  return (
    // Wider than the screen it is moved with the arrow keys, too.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a place that scrolls must be reached by keyboard
    <div class="table" role="group" aria-label={caption} tabIndex={0}>
      <table>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map(({ title, align }) => (
              <th key={title} scope="col" class={align}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map(({ title, of, align }) => (
                <td key={title} class={align}>
                  {of(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
