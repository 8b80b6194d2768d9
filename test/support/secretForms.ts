/** The ways in which receivers, gateways and frameworks write back what they were sent: name to function. */
export const SECRET_FORMS: Readonly<Record<string, (secret: string) => string>> = {
  unchanged: (secret) => secret,
  JSON: json,
  "JSON with HTML characters as \\u (Go, Rails)": (secret) =>
    json(secret).replace(/[<>&'+=]/g, (character) => unicode(character)),
  "JSON with HTML characters as upper-case \\u (.NET)": (secret) =>
    json(secret).replace(
      /[<>&'+`]|\\"|[^\0-\x7f]/g,
      (found) => `\\u${unicode(found.slice(-1)).slice(2).toUpperCase()}`,
    ),
  "JSON with escaped slashes (PHP)": (secret) => json(secret).replaceAll("/", "\\/"),
  "JSON in ASCII (Python, PHP)": asciiJson,
  "JSON in JSON": (secret) => json(json(secret)),
  HTML: (secret) => html(secret, { "'": "&#39;" }),
  "HTML of Go": (secret) => html(secret, { "'": "&#39;", '"': "&#34;", "+": "&#43;" }),
  "HTML in hexadecimal": (secret) => html(secret, { "'": "&#x27;", '"': "&#x22;", "/": "&#x2F;", "+": "&#x2b;" }),
  "JSON in HTML": (secret) => html(json(secret), {}),
  "percent-encoded": encodeURIComponent,
  "percent-encoded in lower case": (secret) => encodeURIComponent(secret).replace(/%../g, (byte) => byte.toLowerCase()),
  "form-encoded": (secret) => new URLSearchParams({ x: secret }).toString().slice(2),
  "JSON with `=` as \\u003d alone (Gson)": (secret) => json(secret).replace(/[<>&'=]/g, unicode),
  "JSON in JSON in ASCII": (secret) => asciiJson(asciiJson(secret)),
  "bytes in Python": (secret) =>
    units(Buffer.from(secret.replaceAll("\\", "\\\\")).toString("latin1"))
      .map((unit) => (unit > "\u007f" ? `\\x${hex(unit.charCodeAt(0))}` : unit))
      .join(""),
  "percent-encoded but for slashes (Python)": (secret) => strict(secret).replaceAll("%2F", "/"),
  "percent-encoded with !'()* (PHP)": strict,
  "form-encoded with !'()* (Go)": (secret) => strict(secret).replaceAll("%20", "+"),
  "as a segment of a path (Go)": (secret) =>
    encodeURIComponent(secret).replace(/%(?:24|26|2B|3D|3A|40)/g, decodeURIComponent),
  "as a URL": encodeURI,
  "as a password of a URL": (secret) => {
    const url = new URL("http://u@h");
    url.password = secret;
    return url.password;
  },
  "HTML in decimal": (secret) => entities(secret, (code) => `#${code}`),
  "HTML in upper-case hexadecimal": (secret) => entities(secret, (code) => `#x${code.toString(16).toUpperCase()}`),
  "HTML with names": (secret) => entities(secret, (code) => NAMES[code] ?? `#${code}`),
  "in hexadecimal": (secret) => Buffer.from(secret).toString("hex"),
  "in upper-case hexadecimal": (secret) => Buffer.from(secret).toString("hex").toUpperCase(),
  "in hexadecimal with blanks": (secret) => bytes(secret).map(hex).join(" "),
  "in base64": base64,
  "in base64 for URLs": (secret) => Buffer.from(secret).toString("base64url"),
  "in base64, wrapped": (secret) => wrapped(base64(secret), 16, "\r\n"),
  "in base64, wrapped early": (secret) => wrapped(base64(secret), 9, "\n"),
  "in base64, wrapped in JSON": (secret) => json(wrapped(base64(secret), 12, "\n")),
  "in base64, wrapped in JSON of PHP": (secret) => json(wrapped(base64(secret), 12, "\r\n")).replaceAll("/", "\\/"),
  "in base64 with escaped slashes": (secret) => base64(secret).replaceAll("/", "\\/"),
  "in base64, percent-encoded": (secret) => encodeURIComponent(base64(secret)),
  "as UTF-8 read as Latin-1": (secret) => Buffer.from(secret).toString("latin1"),
};

const NAMES: Readonly<Record<number, string>> = {
  34: "quot",
  38: "amp",
  39: "apos",
  60: "lt",
  62: "gt",
  228: "auml",
  246: "ouml",
  252: "uuml",
};

/** As RFC 3986 has it: only unreserved characters stay. */
function strict(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (character) => `%${hex(character.charCodeAt(0)).toUpperCase()}`);
}

function entities(text: string, name: (code: number) => string): string {
  return text.replace(/[&<>"']|[^\0-\x7f]/gu, (character) => `&${name(character.codePointAt(0) ?? 0)};`);
}

function json(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

function asciiJson(text: string): string {
  return units(json(text))
    .map((unit) => (unit > "\u007f" ? unicode(unit) : unit))
    .join("");
}

function unicode(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

function html(text: string, others: Readonly<Record<string, string>>): string {
  const names: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", ...others };
  return [...text].map((character) => names[character] ?? character).join("");
}

function units(text: string): readonly string[] {
  return text.split("");
}

function bytes(text: string): readonly number[] {
  return [...Buffer.from(text)];
}

function hex(byte: number): string {
  return byte.toString(16).padStart(2, "0");
}

function base64(text: string): string {
  return Buffer.from(text).toString("base64");
}

function wrapped(text: string, width: number, lineBreak: string): string {
  return (text.match(new RegExp(`.{1,${width}}`, "g")) ?? []).join(lineBreak);
}
