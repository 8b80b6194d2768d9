/** Stops a source or a role, and cuts the stop off when it has taken this long, in ms. */
export async function stopWithin(ms: number, service: { stop(cutoff: AbortSignal): Promise<void> }): Promise<void> {
  const cutoff = new AbortController();
  const timer = setTimeout(() => cutoff.abort(), ms);
  await service.stop(cutoff.signal).finally(() => clearTimeout(timer));
}
