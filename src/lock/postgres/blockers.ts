export interface EdgeRow {
  wants: string;
  host: string;
  pid: number;
  keeps: string[];
}

export interface BackendRow {
  pid: number;
  application_name: string;
  query: string;
  blockers: number[];
}

export function graphOf(edges: string[][]): Map<string, string[]> {
  const graph = new Map<string, string[]>();
  for (const [from = '', to = ''] of edges) graph.set(from, [...(graph.get(from) ?? []), to]);
  return graph;
}

/** What the holders of a name wait for, the holders of that, and so on: why the name is not released. */
export function blockingFrom(name: string, edges: readonly EdgeRow[]): string[] {
  const lines: string[] = [];
  const seen = new Set<string>();
  const queue = [name];
  for (let each = queue.shift(); each !== undefined; each = queue.shift()) {
    if (seen.has(each)) continue;
    seen.add(each);
    for (const { wants, host, pid, keeps } of edges) {
      if (!keeps.includes(each)) continue;
      lines.push(`"${each}" is held by ${host} (pid ${pid}), which waits for "${wants}"`);
      queue.push(wants);
    }
  }
  return lines;
}
