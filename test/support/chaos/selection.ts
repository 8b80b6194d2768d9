import { MOMENTARY, type MomentaryFault } from "./plan.ts";

/** What lasts for the whole run. */
export const LASTING = [
  "wrong clocks",
  "applications",
  "slow inserts",
  "conflicts",
  "poisoned rows",
  "refused rows",
  "foreign rows",
  "parked rows",
] as const;
export type LastingFault = (typeof LASTING)[number];

export type FaultName = MomentaryFault | LastingFault;

const ALL: readonly FaultName[] = [...LASTING, ...MOMENTARY];

/**
 * The faults of a run: all of them, unless `SVC_FAULTS_ONLY` lists the faults to carry out or `SVC_FAULTS_WITHOUT` the faults to leave out, separated by
 * commas.
 *
 * @throws Error for a name that no fault has
 */
export function selectedFaults(env: NodeJS.ProcessEnv): ReadonlySet<FaultName> {
  const only = namesOf(env, "SVC_FAULTS_ONLY");
  const without = new Set(namesOf(env, "SVC_FAULTS_WITHOUT"));
  return new Set((only ?? ALL).filter((name) => !without.has(name)));
}

function namesOf(env: NodeJS.ProcessEnv, variable: string): readonly FaultName[] | undefined {
  const text = env[variable]?.trim() ?? "";
  if (text === "") return undefined;
  return text.split(",").map((part) => {
    const name = ALL.find((each) => each === part.trim());
    if (name === undefined) {
      throw new Error(`${variable} names "${part.trim()}", which is not a fault. The faults are: ${ALL.join(", ")}`);
    }
    return name;
  });
}
