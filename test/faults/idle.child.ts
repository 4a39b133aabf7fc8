import { note, ready } from './member-side.ts';

note({ do: 'waits' });
ready(() => Promise.resolve());
