import type { Definition, Source } from './source.ts';

/**
 * Gives each table the number that it had in the installed declaration, and never gives the number of one table to another: the
 * log names tables by number, and outlives a declaration. Only the root has the number 0.
 */
export function keepNumbers(definition: Definition, installed: Definition | undefined): Definition {
  if (installed === undefined) return definition;
  const known = [...installed.sources.slice(1), ...(installed.former ?? [])];
  let next = 1 + Math.max(0, ...known.map(({ number }) => number));
  const sources = definition.sources.map((source, index) => {
    if (index === 0) return { ...source, number: 0 };
    const before = known.find(({ schema, name }) => schema === source.schema && name === source.name);
    return { ...source, number: before?.number ?? next++ };
  });
  const former = known
    .filter(({ number }) => !sources.some((source) => source.number === number))
    .map(({ number, schema, name }) => ({ number, schema, name }));
  return former.length === 0 ? { ...definition, sources } : { ...definition, sources, former };
}

/** How rows lead to entities, whatever the order of the tables. If this changes, the log may have keys that now mean others. */
export function waysOf({ sources }: Definition): readonly Omit<Source, 'history'>[] {
  return sources.map(({ history: _history, ...way }) => way).toSorted((a, b) => a.number - b.number);
}

/** The tables that the log may name: those of the declaration, and those that were captured earlier. */
export function loggedTables({
  sources,
  former = [],
}: Definition): readonly Pick<Source, 'number' | 'schema' | 'name'>[] {
  return [...sources, ...former];
}
