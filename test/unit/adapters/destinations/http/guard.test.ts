import { describe, expect, test } from "@jest/globals";
import { checkAddresses, type Lookup, refusalOf } from "../../../../../src/adapters/destinations/http/guard.ts";

const strict = { blockPrivate: true, allowMetadata: false };
const open = { blockPrivate: false, allowMetadata: false };

const PRIVATE = [
  ["127.0.0.1", "loopback"],
  ["127.9.9.9", "loopback"],
  ["::1", "loopback"],
  ["169.254.1.1", "link-local"],
  ["fe80::1", "link-local"],
  ["fe80::1%eth0", "link-local"],
  ["10.0.0.1", "site-local"],
  ["172.16.0.1", "site-local"],
  ["172.31.255.255", "site-local"],
  ["192.168.1.1", "site-local"],
  ["fec0::1", "site-local"],
  ["fc00::1", "unique-local"],
  ["fd12:3456::1", "unique-local"],
  ["0.0.0.0", "unspecified"],
  ["0.1.2.3", "unspecified"],
  ["::", "unspecified"],
  ["100.64.0.1", "shared address space"],
  ["::ffff:127.0.0.1", "loopback"],
  ["::ffff:a00:1", "site-local"],
  ["::10.0.0.1", "site-local"],
  ["64:ff9b::10.0.0.1", "site-local"],
  ["2002:a00:1::", "site-local"],
  ["198.18.0.1", "benchmarking"],
  ["198.19.255.255", "benchmarking"],
  ["2001:2::1", "benchmarking"],
  ["192.0.0.8", "protocol assignments"],
  ["240.0.0.1", "reserved"],
  ["255.255.255.254", "reserved"],
  ["255.255.255.255", "broadcast"],
  ["224.0.0.1", "multicast"],
  ["239.255.255.250", "multicast"],
  ["ff02::1", "multicast"],
  ["100::1", "discard-only"],
  ["2001::1", "Teredo tunnel"],
  ["2001:0:4136:e378:8000:63bf:3fff:fdd2", "Teredo tunnel"],
  ["64:ff9b:1::1", "local translation"],
  ["64:ff9b::c612:1", "benchmarking"],
  ["::ffff:240.0.0.1", "reserved"],
  ["2a00::5efe:10.0.0.1", "site-local"],
  ["2a00::200:5efe:a00:1", "site-local"],
] as const;
const PUBLIC = [
  "8.8.8.8",
  "172.32.0.1",
  "203.0.113.10",
  "2606:4700::1111",
  "::ffff:8.8.8.8",
  "64:ff9b::8.8.8.8",
  "100.128.0.1",
  "198.17.255.255",
  "198.20.0.1",
  "192.0.1.1",
  "192.0.2.1",
  "223.255.255.255",
  "2001:4860:4860::8888",
  "2002:808:808::",
  "2a00::5efe:8.8.8.8",
];
const METADATA = [
  "169.254.169.254",
  "::ffff:169.254.169.254",
  "64:ff9b::a9fe:a9fe",
  "169.254.170.2",
  "fd00:ec2::254",
  "FD00:0EC2:0::254",
  "100.100.100.200",
  "168.63.129.16",
];

describe("with blockPrivateAddresses", () => {
  test.each(PRIVATE)("%s is refused as %s", (address, range) => {
    expect(refusalOf(address, strict)).toBe(
      `${address} is a private address (${range}) and http.blockPrivateAddresses is true`,
    );
  });

  test.each(PUBLIC)("%s passes", (address) => {
    expect(refusalOf(address, strict)).toBeUndefined();
  });

  test("what is no address is refused", () => {
    expect(refusalOf("example.com", strict)).toBe("example.com is not an IP address");
  });
});

describe("without blockPrivateAddresses", () => {
  test.each([...PRIVATE.map(([address]) => address), ...PUBLIC])("%s passes", (address) => {
    expect(refusalOf(address, open)).toBeUndefined();
  });
});

describe("a cloud metadata address", () => {
  test.each(METADATA)("%s is refused always", (address) => {
    expect(refusalOf(address, open)).toContain("is a cloud metadata address; allowMetadataAddress: true");
    expect(refusalOf(address, strict)).toContain("is a cloud metadata address");
  });

  test.each(METADATA)("%s passes when the destination allows it", (address) => {
    expect(refusalOf(address, { blockPrivate: false, allowMetadata: true })).toBeUndefined();
    expect(refusalOf(address, { blockPrivate: true, allowMetadata: true })).toBeUndefined();
  });
});

test.each(["2001:0:a9fe:a9fe::1", "2001::5601:5601"])(
  "a cloud metadata address in the Teredo tunnel %s is refused",
  (address) => {
    expect(refusalOf(address, open)).toContain("is a cloud metadata address");
  },
);

describe("the check at start", () => {
  const names: Readonly<Record<string, readonly string[]>> = {
    "public.example": ["203.0.113.1"],
    "mixed.example": ["203.0.113.1", "10.0.0.1"],
    "metadata.example": ["169.254.169.254"],
  };
  const lookup: Lookup = (hostname, _options, callback) => {
    const addresses = names[hostname];
    if (addresses === undefined) callback(Object.assign(new Error("no such host"), { code: "ENOTFOUND" }), []);
    else
      callback(
        null,
        addresses.map((address) => ({ address, family: 4 })),
      );
  };
  const check = (
    {
      allowMetadataAddress: allowMetadata = false,
      ...urls
    }: { baseUrl: string; "auth.tokenUrl"?: string; allowMetadataAddress?: boolean },
    blockPrivate = true,
  ) => checkAddresses("destinations.shop", urls, { blockPrivate, allowMetadata }, lookup);

  test.each([
    "http://2130706433",
    "http://0x7f.1",
    "http://0177.0.0.1",
    "http://127.1",
    "http://[::ffff:7f00:1]",
    "http://127.0.0.1.",
  ])("refuses loopback written as %s", async (baseUrl) => {
    expect(await check({ baseUrl })).toEqual([
      { path: "destinations.shop.baseUrl", message: expect.stringContaining("(loopback)") },
    ]);
  });

  test.each(["http://public.example/x", "https://203.0.113.1:8443", "http://unknown.example"])(
    "passes %s",
    async (baseUrl) => {
      expect(await check({ baseUrl })).toEqual([]);
    },
  );

  test.each([
    ["http://127.0.0.1:8080/x", "127.0.0.1"],
    ["http://2130706433/", "127.0.0.1"],
    ["http://0x7f.1/", "127.0.0.1"],
    ["http://[::1]:8080/", "::1"],
    ["http://[::ffff:10.0.0.1]/", "::ffff:a00:1"],
    ["http://mixed.example/", "mixed.example"],
  ])("refuses %s", async (baseUrl, host) => {
    const [problem, ...others] = await check({ baseUrl });
    expect(others).toEqual([]);
    expect(problem?.path).toBe("destinations.shop.baseUrl");
    expect(problem?.message).toMatch(`the host ${host} must not be used: `);
  });

  test("looks at the token URL too", async () => {
    const urls = { baseUrl: "http://public.example", "auth.tokenUrl": "http://10.0.0.1/token" };
    expect(await check(urls)).toMatchObject([{ path: "destinations.shop.auth.tokenUrl" }]);
  });

  test("passes private addresses, and refuses metadata, when the block is off", async () => {
    expect(await check({ baseUrl: "http://mixed.example" }, false)).toEqual([]);
    expect(await check({ baseUrl: "http://metadata.example" }, false)).toHaveLength(1);
    expect(await check({ baseUrl: "http://metadata.example", allowMetadataAddress: true }, false)).toEqual([]);
  });
});
