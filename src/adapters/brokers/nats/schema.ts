/** How to reach NATS, for its sources and destinations (spec, "Subject-broker destination" and "Subject-broker source"). */
export const natsConnectionKeys = {
  servers: { type: "string", url: true, syntax: "notBlank", description: "Server URLs, comma-separated." },
  username: { type: "string", description: "User name; needs `password`." },
  password: { type: "string", secret: true, description: "Password; needs `username`." },
  token: { type: "string", secret: true, description: "Token. Set a token or a user name, not both." },
} as const;

/**
 * One entry of `servers`: scheme, user info, host, port. The user info reaches to the last @, since people forget to percent-encode one in a
 * password.
 */
export const NATS_SERVER =
  /^(?:(nats|tls):\/\/)?(?:(?![a-z][a-z0-9+.-]*:\/\/)(.*)@)?(\[[0-9a-f:.%]+\]|[^\s:/@[\]]+)(?::(\d{1,5}))?\/?$/i;
