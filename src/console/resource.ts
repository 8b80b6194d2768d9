import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get } from "./api.ts";

export interface Resource<T> {
  readonly data: T | undefined;
  readonly error: string | undefined;
  readonly reload: () => void;
}

/**
 * Reads a path again whenever it changes, and in the background with each beat. The last data stays while new data
 * loads.
 *
 * @param beat of the live events; a constant reads once
 */
export function useResource<T>(path: string, beat = 0): Resource<T> {
  const [loaded, setLoaded] = useState<{ path: string; data: T } | undefined>();
  const [error, setError] = useState<string | undefined>();
  // An answer that comes after a newer request is dropped.
  const newest = useRef(0);
  const load = useCallback(
    async (isBackground: boolean) => {
      const turn = ++newest.current;
      try {
        const data = await get<T>(path, isBackground);
        if (turn !== newest.current) return;
        setLoaded({ path, data });
        setError(undefined);
      } catch (failure) {
        if (turn === newest.current) setError((failure as Error).message);
      }
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
    reload: () => void load(false),
  };
}
