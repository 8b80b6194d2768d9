import { expect, test } from "@jest/globals";
import { refusal } from "../../support/chart/render.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";

/** Values that could be rendered and would not run, or not as they read: each is refused, with what to do instead. */

interface Refused {
  readonly why: string;
  /** A value set; default `minimal`. */
  readonly from?: string;
  readonly set: Readonly<Record<string, unknown>>;
  readonly message: RegExp;
}

const CRON_WITH_SCALING = { "roles.retention.autoscaling.enabled": true };
const KEDA = { enabled: true, kind: "keda" };

const REFUSED: readonly Refused[] = [
  { why: "no database", set: { "config.database.url": "" }, message: /config\.database\.url is missing/ },
  { why: "a misspelt value", set: { replica: 2 }, message: /additional properties 'replica' not allowed/i },
  {
    why: "a misspelt value of a role",
    set: { "roles.poller.replica": 2 },
    message: /roles\/poller.*'replica' not allowed/is,
  },
  { why: "a configuration that is text", set: { config: "server: {}" }, message: /config.*want object/is },
  {
    why: "a password as plain text",
    set: { "config.database.password": "hunter2" },
    message: /config\.database\.password would stand as plain text in a ConfigMap/,
  },
  {
    why: "a password as the fallback of a placeholder",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a placeholder of the configuration
    set: { "config.database.password": "${PASSWORD:-hunter2}" },
    message: /config\.database\.password would stand as plain text/,
  },
  {
    why: "a password in a URL",
    from: "brokers",
    set: { "config.destinations.billing.url": "amqp://svc:hunter2@rabbitmq:5672/" },
    message: /config\.destinations\.billing\.url would stand as plain text/,
  },
  {
    why: "a password in one of several URLs",
    from: "brokers",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a placeholder of the configuration
    set: { "config.destinations.notifications.servers": "nats://a:${NATS_TOKEN}@one:4222,nats://b:hunter2@two:4222" },
    message: /config\.destinations\.notifications\.servers would stand as plain text/,
  },
  {
    why: "a token in a URL",
    from: "brokers",
    set: { "config.destinations.notifications.servers": "nats://one:4222,nats://hunter2@two:4222" },
    message: /config\.destinations\.notifications\.servers would stand as plain text/,
  },
  {
    why: "a key of a sender as plain text",
    from: "all-roles",
    set: { "config.sources.orders.auth.key": "hunter2" },
    message: /config\.sources\.orders\.auth\.key would stand as plain text/,
  },
  {
    why: "a credential among the headers of a destination",
    set: { "config.destinations.billing.headers": { Authorization: "Bearer hunter2" } },
    message: /config\.destinations\.billing\.headers\.Authorization would stand as plain text/,
  },
  {
    why: "a file of a Secret that is not mounted",
    set: { "config.database.password": "file:/etc/svc/secrets/db/password" },
    message: /secretFiles has no entry "db"/,
  },
  {
    why: "a placeholder that nothing fills",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a placeholder of the configuration
    set: { "config.database.username": "${DATABASE_USER}" },
    message: /config names \$\{DATABASE_USER\}, but no pod has this variable: add secretEnv\.DATABASE_USER/,
  },
  {
    why: "migrations in the pods and in the Job",
    set: { "config.database.migrate": true },
    message: /config\.database\.migrate is true, but the migrations run in a Job/,
  },
  {
    why: "bundled migrations of renamed tables",
    set: { "config.database.outboxTableName": "messages" },
    message: /config\.database\.outboxTableName renames/,
  },
  { why: "one port for both", set: { "config.server.managementPort": 8080 }, message: /managementPort must differ/ },
  {
    why: "a port that the chart does not know",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a placeholder of the configuration
    set: { "config.server.httpPort": "${PORT:-8080}" },
    message: /config\.server\.httpPort is "\$\{PORT:-8080\}": write a number/,
  },
  {
    why: "a switch that the chart does not know",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a placeholder of the configuration
    set: { "config.admin": { enabled: "${ADMIN:-true}" } },
    message: /config\.admin\.enabled is .*: write true or false/,
  },
  {
    why: "a port that a variable moves",
    set: { extraEnv: [{ name: "SVC_SERVER_HTTPPORT", value: "3000" }] },
    message: /extraEnv sets SVC_SERVER_HTTPPORT: set the key in config/,
  },
  {
    why: "a switch that a variable turns",
    set: { "roles.poller.extraEnv": [{ name: "SVC_ADMIN_ENABLED", value: "true" }] },
    message: /extraEnv sets SVC_ADMIN_ENABLED/,
  },
  {
    why: "a role whose switch is off",
    set: { "roles.admin.enabled": true },
    message: /roles\.admin\.enabled is true, but config\.admin\.enabled is not/,
  },
  {
    why: "no role at all",
    set: { "roles.ingest.enabled": false, "roles.relay.enabled": false, "roles.poller.enabled": false },
    message: /no role is enabled/,
  },
  {
    why: "two replicas of capture",
    from: "all-roles",
    set: { "roles.capture.replicas": 2 },
    message: /roles\.capture has the role capture, and only one replica may capture/,
  },
  {
    why: "no replica of capture",
    from: "all-roles",
    set: { "roles.capture.replicas": 0 },
    message: /roles\.capture has the role capture, and only one replica may capture/,
  },
  {
    why: "autoscaling of capture",
    from: "all-roles",
    set: { "roles.capture.autoscaling.enabled": true },
    message: /roles\.capture has the role capture, and only one replica may capture/,
  },
  {
    why: "capture beside others in two pods",
    from: "all-in-one",
    set: { "allInOne.replicas": 2 },
    message: /allInOne has the role capture, and only one replica may capture/,
  },
  {
    why: "capture without a poller in its process",
    from: "all-in-one",
    set: { "roles.poller.enabled": false },
    message: /capture wakes the poller of its own process/,
  },
  {
    why: "a rolling update of capture",
    from: "all-roles",
    set: { "roles.capture.strategy": { type: "RollingUpdate" } },
    message: /roles\.capture\.strategy must be Recreate/,
  },
  {
    why: "a state directory beside the volume",
    from: "all-roles",
    set: { "config.outbox.capture.stateDirectory": "/tmp" },
    message: /stateDirectory is "\/tmp": leave it out/,
  },
  { why: "autoscaling of a CronJob", from: "retention-cronjob", set: CRON_WITH_SCALING, message: /kind is CronJob/ },
  {
    why: "retention of both kinds",
    from: "retention-cronjob",
    set: { "roles.retention.kind": ["Deployment", "CronJob"] },
    message: /roles\/retention\/kind/,
  },
  {
    why: "a kill before the shutdown has ended",
    set: { "roles.poller.terminationGracePeriodSeconds": 30 },
    message: /roles\.poller\.terminationGracePeriodSeconds is 30: the shutdown may take 55 s/,
  },
  {
    why: "a disruption budget that holds up every drain",
    set: { "roles.ingest.podDisruptionBudget": { enabled: true, minAvailable: 1 } },
    message: /roles\.ingest\.podDisruptionBudget\.minAvailable is 1 of 1 replicas/,
  },
  {
    why: "more replicas at least than at most",
    set: { "roles.poller.autoscaling": { enabled: true, minReplicas: 6 } },
    message: /roles\.poller\.autoscaling\.maxReplicas is 5, below the 6 of replicas or minReplicas/,
  },
  {
    why: "more replicas than autoscaling allows",
    set: { "roles.poller.replicas": 6, "roles.poller.autoscaling.enabled": true },
    message: /roles\.poller\.autoscaling\.maxReplicas is 5, below the 6 of replicas or minReplicas/,
  },
  {
    why: "autoscaling to nothing",
    set: { "roles.poller.autoscaling": { ...KEDA, minReplicas: 0 } },
    message: /minReplicas.*(minimum|greater)/is,
  },
  {
    why: "autoscaling that measures nothing",
    set: { "roles.poller.autoscaling": { enabled: true, targetCPUUtilizationPercentage: null } },
    message: /needs targetCPUUtilizationPercentage, targetMemoryUtilizationPercentage or metrics/,
  },
  {
    why: "a percentage of no request",
    set: {
      "roles.poller.autoscaling.enabled": true,
      "roles.poller.resources.requests.cpu": null,
      "roleDefaults.resources.requests.cpu": null,
    },
    message: /measures in percent of the request: set resources\.requests\.cpu/,
  },
  {
    why: "KEDA without Prometheus",
    set: { "roles.poller.autoscaling": KEDA },
    message: /roles\.poller\.autoscaling\.keda\.serverAddress is missing/,
  },
  {
    why: "KEDA for a role without a backlog",
    set: { "roles.ingest.autoscaling": KEDA },
    message: /ingest has no backlog that KEDA could ask for/,
  },
  {
    why: "a load balancer in front of metrics and admin routes",
    from: "one-port",
    set: { "service.type": "LoadBalancer" },
    message: /service\.type is LoadBalancer, but the data port also serves metrics.*set config\.server\.managementPort/,
  },
  {
    why: "a port of each node in front of metrics and admin routes",
    from: "one-port",
    set: { "service.type": "NodePort" },
    message: /service\.type is NodePort, but the data port also serves metrics/,
  },
  {
    why: "peers of the data port where every peer of the management port reaches it",
    from: "one-port",
    set: { "networkPolicy.dataFrom": [{ namespaceSelector: {} }] },
    message: /networkPolicy\.dataFrom has no effect.*Set config\.server\.managementPort/,
  },
  {
    why: "more connections than the database has",
    from: "production",
    // Ingest 12 pods, relay 2, poller 3, retention 1, each one more while it is replaced, of 20; and one for LISTEN in each of 4 pollers.
    set: { "database.maxConnections": 443 },
    message: /up to 444 connections, but database\.maxConnections is 443: lower config\.database\.poolSize \(20\)/,
  },
  {
    why: "a sum of connections that it cannot compute",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a placeholder of the configuration
    set: { "database.maxConnections": 100, "config.database.poolSize": "${POOL_SIZE:-10}" },
    message: /config\.database\.poolSize is .*: write a number/,
  },
  { why: "an Ingress without a host", set: { "ingress.enabled": true }, message: /ingress\.hosts is empty/ },
  {
    why: "an Ingress without ingest",
    set: { "ingress.enabled": true, "ingress.hosts": ["a.example.com"], "roles.ingest.enabled": false },
    message: /no pod has the role ingest/,
  },
  { why: "a route without a Gateway", set: { "httpRoute.enabled": true }, message: /httpRoute\.parentRefs is empty/ },
  {
    why: "a change to an alert that does not exist",
    from: "production",
    set: { "prometheusRule.alerts": { SvcOutboxLat: { enabled: false } } },
    message: /names SvcOutboxLat: there is no such alert/,
  },
  {
    why: "a threshold of an alert without one",
    from: "production",
    set: { "prometheusRule.alerts": { SvcDown: { threshold: 5 } } },
    message: /SvcDown\.threshold: this alert compares with no number/,
  },
];

describeWithTools(["helm"], "the chart refuses", () => {
  test.concurrent.each(REFUSED.map((refused) => [refused.why, refused] as const))(
    "%s",
    async (_why, { from, set, message }) => {
      expect(await refusal({ values: [from ?? "minimal"], set })).toMatch(message);
    },
  );
});
