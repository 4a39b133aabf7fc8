import type { ComponentProps } from 'preact';
import { lazy } from '../parts/lazy.tsx';
import type Graph from './graph.tsx';

/** The code that lays out graphs is a third of the whole app, so it is loaded later. */
export const LazyGraph = lazy<ComponentProps<typeof Graph>>(async () => (await import('./graph.tsx')).default);
