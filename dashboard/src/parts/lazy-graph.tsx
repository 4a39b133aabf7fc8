import type { ComponentProps } from 'preact';
import type Graph from './graph.tsx';
import { lazy } from './lazy.tsx';

/** What lays out graphs is a third of the whole app. */
export const LazyGraph = lazy<ComponentProps<typeof Graph>>(async () => (await import('./graph.tsx')).default);
