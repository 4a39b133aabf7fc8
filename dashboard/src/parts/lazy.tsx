import type { FunctionComponent, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Skeleton, Trouble } from './card.tsx';

/** A component whose code is fetched when it is first drawn. So a page that is not opened costs nothing. */
export function lazy<P extends object>(load: () => Promise<FunctionComponent<P>>): FunctionComponent<P> {
  let loaded: FunctionComponent<P> | undefined;
  return function Lazy(props: P): JSX.Element {
    const [, setLoaded] = useState(loaded !== undefined);
    const [error, setError] = useState<Error | undefined>();
    const fetchCode = (): void => {
      setError(undefined);
      load().then((found) => {
        loaded = found;
        setLoaded(true);
      }, setError);
    };
    useEffect(() => {
      if (loaded === undefined) fetchCode();
    }, []);
    if (loaded !== undefined) {
      const Loaded = loaded;
      return <Loaded {...props} />;
    }
    // A browser remembers that it could not load a module and does not request it again. After a reload it does.
    return error === undefined ? <Skeleton /> : <Trouble error={error} retry={() => location.reload()} />;
  };
}
