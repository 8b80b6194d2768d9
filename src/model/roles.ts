/** The roles that a process can take on; each scales as a deployment of its own (design, "The shape"). */
export const ROLES = ["ingest", "relay", "poller", "retention", "capture", "admin"] as const;
export type Role = (typeof ROLES)[number];
