/** How to reach a subject broker, for its sources and destinations (spec, "Subject-broker destination" and "Subject-broker source"). */
export const natsConnectionKeys = {
  servers: { type: "string", url: true, syntax: "notBlank", description: "Server URLs, comma-separated." },
  username: { type: "string", description: "User name; needs `password`." },
  password: { type: "string", secret: true, description: "Password; needs `username`." },
  token: { type: "string", secret: true, description: "Token. Set a token or a user name, not both." },
} as const;
