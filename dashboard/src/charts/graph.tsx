import { graphlib, layout } from '@dagrejs/dagre';
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import type { Tone } from '../parts/badge.tsx';

export interface Node {
  readonly id: string;
  readonly title: string;
  readonly under?: string;
  readonly tone?: Tone;
  readonly isCurrent?: boolean;
  readonly href?: string;
}

export interface Edge {
  readonly from: string;
  readonly to: string;
  readonly label?: string;
  readonly look?: 'hot' | 'taken' | 'soft';
}

interface GraphProps {
  readonly title: string;
  readonly nodes: readonly Node[];
  readonly edges: readonly Edge[];
  readonly direction?: 'LR' | 'TB';
}

const LETTER = 7.4;
const PAD = 12;

interface Point {
  readonly x: number;
  readonly y: number;
}

interface Placement {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** Boxes and arrows. A table next to the graph shows the same, so it is one image for screen readers. */
export default function Graph({ title, nodes, edges, direction = 'TB' }: GraphProps): JSX.Element {
  const shape = JSON.stringify([
    nodes.map(({ id, title: text, under }) => [id, text, under]),
    edges.map(({ from, to, label }) => [from, to, label]),
    direction,
  ]);
  const { places, routes, width, height } = useMemo(() => place(nodes, edges, direction), [shape]);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a place that scrolls must be reached by keyboard
    <div class="graph" tabIndex={0} role="group" aria-label={title}>
      <svg
        width={width}
        height={height}
        viewBox={`0 0 ${width} ${height}`}
        role="group"
        aria-label={`${title}: ${nodes.length} boxes, ${edges.length} arrows`}
      >
        <defs>
          {['', 'hot', 'taken'].map((look) => (
            <marker
              key={look}
              id={`tip-${look}`}
              viewBox="0 0 8 8"
              refX="7"
              refY="4"
              markerWidth="7"
              markerHeight="7"
              markerUnits="userSpaceOnUse"
              orient="auto"
            >
              <path class={`tip ${look}`} d="M0 0 8 4 0 8z" />
            </marker>
          ))}
        </defs>
        {edges.map(({ from, to, label, look = '' }, index) => {
          const route = routes[index];
          if (route === undefined) return null;
          return (
            <g key={`${from} ${to} ${label}`}>
              <path class={`edge ${look}`} d={route.d} marker-end={`url(#tip-${look === 'soft' ? '' : look})`} />
              {label !== undefined && (
                <text class="edge-label" x={route.x} y={route.y} text-anchor="middle">
                  {label}
                </text>
              )}
            </g>
          );
        })}
        {nodes.map((node) => {
          const at = places.get(node.id);
          if (at === undefined) return null;
          const box = <Box node={node} at={at} />;
          return node.href === undefined ? (
            <g key={node.id}>{box}</g>
          ) : (
            <a key={node.id} href={node.href}>
              {box}
            </a>
          );
        })}
      </svg>
    </div>
  );
}

function Box({ node, at }: { readonly node: Node; readonly at: Placement }): JSX.Element {
  const { title, under, tone, isCurrent = false } = node;
  return (
    <g
      class={`node ${tone === undefined ? '' : `tone-${tone}`} ${isCurrent ? 'current' : ''}`}
      transform={`translate(${at.x - at.width / 2} ${at.y - at.height / 2})`}
    >
      <title>{under === undefined ? title : `${title}: ${under}`}</title>
      <rect width={at.width} height={at.height} rx="9" />
      <text x={at.width / 2} y={under === undefined ? at.height / 2 + 4.5 : 17} text-anchor="middle">
        {shorten(title)}
      </text>
      {under !== undefined && (
        <text class="under" x={at.width / 2} y={32} text-anchor="middle">
          {shorten(under)}
        </text>
      )}
    </g>
  );
}

function place(
  nodes: readonly Node[],
  edges: readonly Edge[],
  direction: string,
): { places: Map<string, Placement>; routes: { d: string; x: number; y: number }[]; width: number; height: number } {
  const graph = new graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: direction, nodesep: 26, ranksep: 44, edgesep: 14, marginx: 14, marginy: 14 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { id, title, under = '' } of nodes) {
    const letters = Math.max(shorten(title).length, shorten(under).length * 0.9);
    graph.setNode(id, { width: Math.max(88, letters * LETTER + 2 * PAD), height: under === '' ? 34 : 42 });
  }
  edges.forEach(({ from, to, label = '' }, index) => {
    graph.setEdge(from, to, { width: label.length * 6, height: label === '' ? 0 : 14, labelpos: 'c' }, String(index));
  });
  layout(graph);
  const places = new Map<string, Placement>(nodes.map(({ id }) => [id, graph.node(id) as unknown as Placement]));
  const routes = edges.map(({ from, to }, index) => {
    const {
      points = [],
      x,
      y,
    } = graph.edge(from, to, String(index)) as { points?: { x: number; y: number }[]; x?: number; y?: number };
    const middle = points[Math.floor(points.length / 2)];
    return { d: curve(points), x: x ?? middle?.x ?? 0, y: (y ?? middle?.y ?? 0) + 4 };
  });
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  // Arrows may reach further than the boxes.
  const all = edges.flatMap(
    ({ from, to }, index) => (graph.edge(from, to, String(index)) as { points?: Point[] }).points ?? [],
  );
  const farthest = (of: 'x' | 'y'): number => Math.max(0, ...all.map((point) => point[of])) + PAD;
  return {
    places,
    routes,
    width: Math.ceil(Math.max(width, farthest('x'))),
    height: Math.ceil(Math.max(height, farthest('y'))),
  };
}

/** A curve through the midpoints between the points, so that corners are round. */
function curve(points: readonly { readonly x: number; readonly y: number }[]): string {
  const [first, ...rest] = points;
  const last = rest.at(-1);
  if (first === undefined || last === undefined) return '';
  let d = `M${first.x} ${first.y}`;
  rest.slice(0, -1).forEach((point, index) => {
    const next = rest[index + 1] ?? last;
    const isEnd = index === rest.length - 2;
    d += `Q${point.x} ${point.y} ${isEnd ? next.x : (point.x + next.x) / 2} ${isEnd ? next.y : (point.y + next.y) / 2}`;
  });
  return rest.length === 1 ? `${d}L${last.x} ${last.y}` : d;
}

function shorten(text: string): string {
  return text.length > 34 ? `${text.slice(0, 33)}…` : text;
}
