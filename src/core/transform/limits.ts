/** Of an expression without limits of its own, and those of a transform block by default. */
export const DEFAULT_LIMITS = { timeoutMs: 100, maxDepth: 100 } as const;
