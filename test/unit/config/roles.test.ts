import { describe, expect, test } from "@jest/globals";
import { checkRoles, parseRole, rolesEnabled } from "../../../src/config/roles.ts";
import { ROLES } from "../../../src/model/roles.ts";
import { loadWith } from "./support.ts";

const OFF = loadWith("inbox: { relay: { enabled: false } }\n");
const ON = loadWith(`outbox: { capture: { enabled: true, mode: postgres-logical, stateDirectory: /s } }
retention: { enabled: true }
admin: { enabled: true, insecure: true }
`);

describe("the roles of a process that names none", () => {
  test("are the roles that the configuration switches on", () => {
    expect(rolesEnabled(ON)).toEqual([...ROLES]);
    expect(rolesEnabled(OFF)).toEqual(["ingest", "poller"]);
    expect(rolesEnabled(loadWith(""))).toEqual(["ingest", "relay", "poller"]);
  });

  test("are never refused", () => {
    for (const config of [ON, OFF]) expect(checkRoles(config, rolesEnabled(config), false)).toEqual([]);
  });
});

describe("roles on the command line", () => {
  test.each([
    ["relay", "inbox.relay.enabled"],
    ["retention", "retention.enabled"],
    ["admin", "admin.enabled"],
  ] as const)("%s is refused when %s is false", (role, key) => {
    expect(checkRoles(OFF, [role], true)).toEqual([
      {
        path: key,
        message: `is false, but the role ${role} is named on the command line: set it to true, or leave the role out`,
      },
    ]);
    expect(checkRoles(ON, [role], true)).toEqual([]);
  });

  test("capture is refused when it is switched off, and without poller", () => {
    expect(checkRoles(OFF, ["capture"], true).map(({ path }) => path)).toEqual(["outbox.capture.enabled", "capture"]);
    expect(checkRoles(ON, ["capture"], true)).toEqual([
      {
        path: "capture",
        message: "the role capture needs poller in the same process, which it wakes: run svc capture poller",
      },
    ]);
    expect(checkRoles(ON, ["capture", "poller"], true)).toEqual([]);
  });

  test("are read by name, and a wrong name gets the nearest", () => {
    expect(parseRole("poller")).toBe("poller");
    expect(() => parseRole("poler")).toThrow(
      'there is no role "poler": the roles are ingest, relay, poller, retention, capture, admin; did you mean "poller"?',
    );
  });
});
