import type { ComponentProps } from 'preact';
import { lazy } from '../parts/lazy.tsx';
import type Graph from './graph.tsx';

/** What lays out graphs is a third of the whole app. */
export const LazyGraph = lazy<ComponentProps<typeof Graph>>(async () => (await import('./graph.tsx')).default);
