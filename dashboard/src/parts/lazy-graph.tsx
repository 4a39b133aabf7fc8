import type { ComponentProps, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Skeleton } from './card.tsx';
import type Graph from './graph.tsx';

let loaded: typeof Graph | undefined;

/** Loaded with the first page that draws one: it is a third of the whole app. */
export function LazyGraph(props: ComponentProps<typeof Graph>): JSX.Element {
  const [Drawn, setDrawn] = useState<{ readonly as: typeof Graph } | undefined>(loaded && { as: loaded });
  useEffect(() => {
    if (Drawn !== undefined) return;
    void import('./graph.tsx').then(({ default: graph }) => {
      loaded = graph;
      setDrawn({ as: graph });
    });
  }, [Drawn]);
  return Drawn === undefined ? <Skeleton /> : <Drawn.as {...props} />;
}
