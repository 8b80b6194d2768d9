/**
 * The packaged default file: read only when there is neither an external file nor an `SVC_` variable (spec, "Configuration
 * resource"). It is a module and not a file, so that it is wherever the program is.
 */
export const PACKAGED_DEFAULT = `# Packaged default of svc: used when no configuration file exists and no SVC_ variable is set.
server:
  httpPort: 8080
database:
  type: postgresql
  url: jdbc:postgresql://localhost:5432/svc
  username: svc
  password: svc
`;
