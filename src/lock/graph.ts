/** A wait-for graph: each key waits for all of its values. */
export type Graph = ReadonlyMap<string, readonly string[]>;

/** The circles that are found when each edge is walked once; each as its members in order, the smallest first. */
export function cyclesOf(graph: Graph): string[][] {
  const cycles = new Map<string, string[]>();
  const done = new Set<string>();
  for (const start of graph.keys()) walk(graph, start, [], done, cycles);
  return [...cycles.values()];
}

function walk(graph: Graph, node: string, path: string[], done: Set<string>, cycles: Map<string, string[]>): void {
  const at = path.indexOf(node);
  if (at >= 0) {
    const cycle = fromSmallest(path.slice(at));
    cycles.set(cycle.join('\0'), cycle);
    return;
  }
  if (done.has(node)) return;
  path.push(node);
  for (const next of graph.get(node) ?? []) walk(graph, next, path, done, cycles);
  path.pop();
  done.add(node);
}

function fromSmallest(cycle: string[]): string[] {
  const smallest = cycle.reduce((least, each, index) => (each < (cycle[least] ?? '') ? index : least), 0);
  return [...cycle.slice(smallest), ...cycle.slice(0, smallest)];
}
