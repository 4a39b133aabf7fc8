import { useSignalEffect } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type ApiError, get } from './api.ts';
import { isPaused, tick } from './live.ts';

export interface Resource<T> {
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly isLoading: boolean;
  readonly reload: () => void;
}

interface Answer<T> {
  readonly path?: string | undefined;
  readonly data?: T | undefined;
  readonly error?: ApiError | undefined;
}

/**
 * The answer of a path of the API, kept fresh: requested again when the live picture changes, at most every `everyMs`. With an undefined
 * path, nothing is requested. The shown data stay until newer data arrive.
 */
export function useResource<T>(path: string | undefined, everyMs = 2000): Resource<T> {
  const [state, setState] = useState<Answer<T>>({});
  const [isLoading, setLoading] = useState(false);
  const asked = useRef({ at: 0, abort: new AbortController() });
  const load = (): void => {
    if (path === undefined) return;
    asked.current.abort.abort();
    const abort = new AbortController();
    asked.current = { at: performance.now(), abort };
    setLoading(true);
    get<T>(path, abort.signal).then(
      (data) => {
        if (abort.signal.aborted) return;
        setState({ path, data });
        setLoading(false);
      },
      (error: ApiError) => {
        if (abort.signal.aborted) return;
        setState((old) => ({ ...old, path, error }));
        setLoading(false);
      },
    );
  };
  useEffect(() => {
    setState((old) => (old.path === path ? old : {}));
    load();
    return () => asked.current.abort.abort();
  }, [path]);
  const latest = useRef(load);
  latest.current = load;
  useSignalEffect(() => {
    void tick.value;
    const isDue = performance.now() - asked.current.at >= everyMs;
    if (asked.current.at > 0 && isDue && !isPaused.peek() && !document.hidden) latest.current();
  });
  // Data of another path are no answer to this path, not even for the moment until they are dropped.
  const { data, error }: Answer<T> = state.path === path ? state : {};
  return { data, error, isLoading, reload: load };
}
