import { existsSync, readdirSync, statSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "@jest/globals";
import { anchors, links } from "../support/markdown.ts";
import { ROOT, read } from "../support/repository.ts";

const PAGES = ["README.md", "CONTRIBUTING.md", "test/guarantees.md", ...["docs", "deploy", "helm"].flatMap(pagesBelow)];

function pagesBelow(folder: string): string[] {
  const below = path.join(ROOT, folder);
  const names = existsSync(below) ? readdirSync(below, { recursive: true, encoding: "utf8" }) : [];
  return names
    .filter((name) => name.endsWith(".md"))
    .sort()
    .map((name) => `${folder}/${name}`);
}

/** Why a link of a page leads nowhere; undefined when it leads somewhere. */
function fault(page: string, link: string): string | undefined {
  const [target = "", anchor] = link.split("#");
  const file = target === "" ? page : path.normalize(path.join(path.dirname(page), decodeURIComponent(target)));
  if (file.startsWith("..")) return `${link} leads out of the repository`;
  if (!existsSync(path.join(ROOT, file))) return `${link}: there is no ${file}`;
  if (anchor === undefined) return undefined;
  if (statSync(path.join(ROOT, file)).isDirectory()) return `${link}: a folder has no headings`;
  return anchors(read(file)).has(anchor) ? undefined : `${link}: ${file} has no heading "${anchor}"`;
}

describe.each(PAGES)("%s", (page) => {
  test("links to files and headings that are there", () => {
    const relative = links(read(page)).filter((link) => !/^[a-z][a-z+.-]*:/i.test(link));

    expect(relative.flatMap((link) => fault(page, link) ?? [])).toEqual([]);
  });
});

test("llms.txt leads to every document, and to nothing that is not there", () => {
  const listed = links(read("llms.txt"));

  expect(listed.flatMap((link) => fault("llms.txt", link) ?? [])).toEqual([]);
  expect(pagesBelow("docs").filter((page) => !listed.includes(page))).toEqual([]);
});

test("every document begins with its title and its order, which no other of its folder has", () => {
  const documents = pagesBelow("docs").map((page) => {
    const [, title, order, heading] = /^---\ntitle: "?(.+?)"?\norder: (\d+)\n---\n\n# (.+)\n/.exec(read(page)) ?? [];
    return { page, title, heading, place: `${path.dirname(page)} ${order}` };
  });

  expect(documents.filter(({ title, heading }) => title === undefined || title !== heading)).toEqual([]);
  expect(new Set(documents.map(({ place }) => place)).size).toBe(documents.length);
});

test("docs/README.md leads to every document", () => {
  const listed = links(read("docs/README.md"));
  const documents = readdirSync(path.join(ROOT, "docs")).filter((name) => name.endsWith(".md") && name !== "README.md");

  expect(documents.filter((name) => !listed.includes(name))).toEqual([]);
});

test("a link that leads nowhere is found", () => {
  expect(fault("docs/README.md", "nowhere.md")).toMatch("there is no docs/nowhere.md");
  expect(fault("docs/README.md", "concepts.md#nothing")).toMatch('has no heading "nothing"');
  expect(fault("docs/README.md", "../../elsewhere.md")).toMatch("leads out");
  expect(fault("docs/README.md", "#documentation")).toBeUndefined();
});
