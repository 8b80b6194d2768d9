import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get } from "./api.ts";

interface Resource<T> {
  readonly data: T | undefined;
  readonly error: string | undefined;
  readonly isLoading: boolean;
  readonly reload: () => void;
}

/**
 * Reads a path again whenever it changes, and in the background with each beat. The last data stays while new data
 * loads.
 *
 * @param path undefined reads nothing
 * @param beat of the live events; a constant reads once
 */
export function useResource<T>(path: string | undefined, beat = 0): Resource<T> {
  const [loaded, setLoaded] = useState<{ path: string; data: T } | undefined>();
  const [error, setError] = useState<string | undefined>();
  const [isLoading, setLoading] = useState(path !== undefined);
  // An answer that comes after a newer request is dropped.
  const newest = useRef(0);
  const load = useCallback(
    async (isBackground: boolean) => {
      if (path === undefined) return;
      const turn = ++newest.current;
      if (!isBackground) setLoading(true);
      try {
        const data = await get<T>(path, { isBackground });
        if (turn !== newest.current) return;
        setLoaded({ path, data });
        setError(undefined);
      } catch (failure) {
        if (turn === newest.current) setError((failure as Error).message);
      }
      if (turn === newest.current) setLoading(false);
    },
    [path],
  );
  useEffect(() => void load(false), [load]);
  const firstBeat = useRef(beat);
  useEffect(() => {
    if (beat === firstBeat.current) return;
    firstBeat.current = beat;
    void load(true);
  }, [beat, load]);
  return {
    data: loaded?.path === path ? loaded?.data : undefined,
    error,
    isLoading,
    reload: () => void load(false),
  };
}
