import { spawnSync } from "node:child_process";

/**
 * Runs every suite that has SQL Server: on the server that `SVC_TEST_SQLSERVER_URL` names, or else in a container.
 * The library of the container is not installed with the others: only this needs it, and Docker.
 */

const IMAGE = "mcr.microsoft.com/mssql/server:2022-latest";
const LIBRARY = "@testcontainers/mssqlserver";
const SUITES = ["sqlServer", "everyDatabase", "clients/adapters"];

const container = process.env.SVC_TEST_SQLSERVER_URL ? undefined : await startContainer();
const url = process.env.SVC_TEST_SQLSERVER_URL || urlOf(container);
const env = { ...process.env, SVC_TEST_SQLSERVER_URL: url, SVC_TEST_REQUIRE: "sqlserver" };
const { status } = spawnSync("npm", ["run", "--silent", "jest", "--", ...SUITES, ...process.argv.slice(2)], {
  stdio: "inherit",
  env,
});
await container?.stop();
process.exitCode = status ?? 1;

async function startContainer() {
  const library = await import(LIBRARY).catch(() => undefined);
  if (library === undefined) {
    process.stderr.write(
      `There is no server: set SVC_TEST_SQLSERVER_URL, or run "npm install --no-save ${LIBRARY}@11" for one in a container (Docker).\n`,
    );
    process.exit(2);
  }
  return await new library.MSSQLServerContainer(IMAGE).acceptLicense().start();
}

function urlOf(started) {
  const login = `${started.getUsername()}:${encodeURIComponent(started.getPassword())}`;
  return `mssql://${login}@${started.getHost()}:${started.getPort()}/?trustServerCertificate=true`;
}
