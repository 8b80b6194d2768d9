import { requiredKinds } from "./brokers/availability.ts";
import { DEPLOY_TOOLS, type DeployTool } from "./brokers/programs.ts";
import { describeWhere } from "./describeWhere.ts";

/**
 * `describe` for tests that need programs to check what `deploy` and `helm` hold. If a program is not installed, the block is skipped and its name gives the
 * reason; if `SVC_TEST_REQUIRE` names it, it fails instead.
 */
export function describeWithTools(tools: readonly DeployTool[], name: string, block: () => void): void {
  const missing = tools.filter((tool) => DEPLOY_TOOLS[tool]() === undefined);
  const need = {
    isThere: missing.length === 0,
    isRequired: missing.some((tool) => requiredKinds().has(tool)),
    what: missing.join(" and "),
    howToGet: `not installed: ${missing.join(", ")}. Run test/services/install.sh, which installs them.`,
    whySkipped: `no ${missing.join(", no ")}: run test/services/install.sh`,
  };
  describeWhere(need, name, block);
}

/**
 * The path of a program.
 *
 * @throws Error when it is not installed; tests that need it stand in a block of {@link describeWithTools}
 */
export function toolPath(tool: DeployTool): string {
  const found = DEPLOY_TOOLS[tool]();
  if (found === undefined) throw new Error(`${tool} is not installed: run test/services/install.sh`);
  return found;
}
