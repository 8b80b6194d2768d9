/** Wait before a message that the inbox table refused is offered to it again, in ms. */
export const REFUSED_RETRY_MS = 10_000;
