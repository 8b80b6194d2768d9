/** A message of 1 kB. */
export const BODY = `{"padding":"${"x".repeat(980)}"}`;
