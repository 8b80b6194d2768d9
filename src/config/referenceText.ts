/** What the reference page says in front of its tables. */
export const REFERENCE_INTRODUCTION = `# Configuration

<!-- Generated from the configuration schema by "npm run generate". Change the schema under src/config/schema and
     src/adapters/*/*/schema.ts, not this page. -->

## Where values come from

For each key the first holder counts:

1. an environment variable that begins with \`SVC_\`;
2. the YAML file: the one named by \`--config\`, else by \`SVC_CONFIG_FILE\`, else \`/etc/svc/svc.yml\` if it exists;
3. the default in the tables below.

A file that \`--config\` or \`SVC_CONFIG_FILE\` names must exist. Without any file and without any \`SVC_\` variable the packaged
default file is read: a local PostgreSQL, no sources, no destinations. A change needs a restart.

\`svc config check\` lists everything that is wrong at once, \`svc config print\` shows the configuration in effect and where each value
came from, and \`svc config schema\` prints the JSON Schema for editors.

Unknown keys and unknown \`SVC_\` variables are warnings that name the nearest known one; \`svc config check --strict\` makes every
warning an error.

## Environment variables

The name is \`SVC_\`, then the key path in upper case with one underscore between levels and none inside a key:
\`SVC_OUTBOX_POLLINTERVALMS\` sets \`outbox.pollIntervalMs\`. \`SVC_OUTBOX_POLL_INTERVAL_MS\` sets nothing.

- Maps: \`SVC_DESTINATIONS_ORDERS_BASEURL\` meets the entry \`orders\` in any letter case; without such an entry it makes \`orders\`. A
  dash or a dot in an entry's name is an underscore in the variable's: \`SVC_SOURCES_WEB_SHOP_TOPIC\` meets \`sources.web-shop\`. A
  new entry's name has no underscore.
- Lists: \`SVC_ROUTES_0_DESTINATION\` sets the first route's \`destination\`. Items are counted from 0 without a gap.
- Lists of text also take one value with commas: \`SVC_SOURCES_EVENTS_TOPICS=orders,invoices\`.
- An empty variable sets a text to empty, and is ignored for every other type.
- Placeholders are not replaced in variables.

## Formats

| Format | Rule |
| --- | --- |
| ms | Whole number of milliseconds, at most 2147483647 (24.8 days). |
| number | Decimal number such as \`0.25\`, without an exponent. |
| duration | Whole number and one suffix \`s\`, \`m\`, \`h\` or \`d\`, such as \`30d\`. |
| secret | Text, or \`file:<path>\`: the file is read once at start and one line break at its end is removed. Shown as \`Secret(***)\`, or \`Secret(empty)\`. |
| text | Taken as it is written: \`0123\` keeps its zero. Passwords inside URLs are masked wherever a URL is shown. |
| enumeration | Exact letter case. |
| JSONPath | A definite path such as \`$.order.id\` or \`$.items[0].sku\`. |

\`file:\` works on secrets only. In \`database.url\`, \`url\` and \`connectionUrl\` it is taken literally: use a placeholder there.

Placeholders in text values of the file: \`\${NAME}\` is replaced by the environment variable \`NAME\`, which must be set;
\`\${NAME:-fallback}\` takes the fallback when the variable is not set or empty, and the fallback may hold placeholders. They work for every
type (\`httpPort: \${PORT:-8080}\`). \`$\${NAME}\` gives the literal text \`\${NAME}\`. A \`\${\` that begins no placeholder stays as it is.

## JDBC URLs

\`jdbc:postgresql://host1:5432,host2:5432/name?sslmode=verify-full\`: hosts are tried in order at each new connection, and of several those that
take no writes (standbys) are skipped; \`targetServerType=primary\` refuses a single one too. An IPv6 address stands in brackets; the port defaults to 5432. Parameters: \`sslmode\`, \`ssl\`, \`sslrootcert\`, \`sslcert\`, \`sslkey\`, \`targetServerType\` (\`any\`, \`primary\`),
\`ApplicationName\`, \`currentSchema\` (one schema). Write special characters percent-encoded.

\`jdbc:sqlserver://host\\instance:1433;databaseName=name;encrypt=true\`: the port defaults to 1433 unless an instance is named. Properties, in any
letter case: \`databaseName\`, \`serverName\`, \`instanceName\`, \`portNumber\`, \`encrypt\`, \`trustServerCertificate\`, \`hostNameInCertificate\`,
\`loginTimeout\`, \`applicationName\`. A value may stand in braces, with \`}}\` for a brace.

User name and password are refused in the URL: they have keys of their own. Any other parameter is a warning and has no effect.`;
