/** The place of a value: names of keys and, in lists, indexes from 0. */
export type KeyPath = readonly (string | number)[];

/**
 * Writes a key path as people read it: `routes[0].topicPattern`; an ambiguous name is quoted,
 * `destinations["a.b"].baseUrl`.
 */
export function formatKeyPath(path: KeyPath): string {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else if (/^[\w-]+$/.test(step)) text += text === "" ? step : `.${step}`;
    else text += `[${JSON.stringify(step)}]`;
  }
  return text;
}

export type Origin =
  | { readonly kind: "environment"; readonly name: string }
  | { readonly kind: "file"; readonly file: string; readonly line: number | undefined }
  | { readonly kind: "packaged" }
  | { readonly kind: "default" }
  /** Taken over from another key, because this one is absent. */
  | { readonly kind: "derived"; readonly from: string };

/** Origins by key path as `formatKeyPath` writes it. */
export type Origins = ReadonlyMap<string, Origin>;

/** The origin in words, such as `SVC_OUTBOX_BATCHSIZE` or `/etc/svc/svc.yml, line 12`. */
export function describeOrigin(origin: Origin): string {
  switch (origin.kind) {
    case "environment":
      return origin.name;
    case "file":
      return origin.line === undefined ? origin.file : `${origin.file}, line ${origin.line}`;
    case "packaged":
      return "packaged default file";
    case "default":
      return "default";
    case "derived":
      return `from ${origin.from}`;
    default:
      return origin satisfies never;
  }
}

/** The origin of the value at a path, or of the nearest block around it that has one (an alias has no line). */
export function originAt(origins: Origins, path: KeyPath): Origin | undefined {
  for (let length = path.length; length > 0; length -= 1) {
    const origin = origins.get(formatKeyPath(path.slice(0, length)));
    if (origin !== undefined) return origin;
  }
  return undefined;
}
