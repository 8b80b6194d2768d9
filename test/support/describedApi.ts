import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import type { HttpAnswer } from "./service.ts";

/** An OpenAPI document against which real answers are held. */
export interface DescribedApi {
  /** Every documented operation, such as `POST /admin/replay`. */
  readonly operations: readonly string[];
  /** Every documented answer, such as `POST /admin/replay 400`. */
  readonly answers: readonly string[];
  /** The documented answers that {@link check} has seen so far. */
  readonly seen: ReadonlySet<string>;
  /**
   * Holds an answer against the document: its status, headers, media type and body.
   *
   * @throws Error that names their differences
   */
  check(method: string, path: string, answer: Pick<HttpAnswer, "status" | "headers" | "text">): void;
  /** What is wrong with the examples of the document; empty when nothing is. */
  wrongExamples(): string[];
}

interface Content {
  readonly [mediaType: string]: {
    readonly schema: object;
    readonly examples?: Readonly<Record<string, { value: unknown }>>;
  };
}
interface DescribedResponse {
  readonly headers?: Readonly<Record<string, { readonly required: boolean; readonly schema: object }>>;
  readonly content?: Content;
}
interface DescribedOperation {
  readonly requestBody?: { readonly content: Content };
  readonly responses: Readonly<Record<string, DescribedResponse>>;
}
interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, DescribedOperation>>>>;
}

const ID = "svc:openapi";

/**
 * Reads a document.
 *
 * @throws Error when a schema in it does not compile
 */
export function describedApi(text: string): DescribedApi {
  const document = JSON.parse(text) as Document;
  const ajv = new Ajv2020({ strict: false, allErrors: true, formats: FORMATS });
  ajv.addSchema(document, ID);

  const compiled = new Map<string, ValidateFunction>();
  const schemaAt = (...place: readonly string[]): ValidateFunction => {
    const pointer = place.map((step) => encodeURIComponent(step.replaceAll("~", "~0").replaceAll("/", "~1"))).join("/");
    const known = compiled.get(pointer) ?? ajv.compile({ $ref: `${ID}#/${pointer}` });
    compiled.set(pointer, known);
    return known;
  };
  const faults = (validate: ValidateFunction, value: unknown): string =>
    validate(value) ? "" : ajv.errorsText(validate.errors);

  const operations = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({
      path,
      method,
      operation,
      name: `${method.toUpperCase()} ${path}`,
    })),
  );
  const contents = operations.flatMap(({ path, method, operation, name }) => {
    const place = ["paths", path, method];
    const responses = Object.entries(operation.responses).map(([status, { content = {} }]) => ({
      name: `${name} ${status}`,
      place: [...place, "responses", status, "content"],
      content,
    }));
    const body = operation.requestBody;
    return body === undefined
      ? responses
      : [...responses, { name: `${name} request`, place: [...place, "requestBody", "content"], content: body.content }];
  });
  // Every schema compiles, also those of answers that no test provokes.
  for (const { place, content } of contents)
    for (const type of Object.keys(content)) schemaAt(...place, type, "schema");

  const seen = new Set<string>();
  return {
    operations: operations.map(({ name }) => name),
    answers: operations.flatMap(({ operation, name }) =>
      Object.keys(operation.responses).map((status) => `${name} ${status}`),
    ),
    seen,
    check(method, path, { status, headers, text: body }) {
      const answer = `${method.toUpperCase()} ${path} ${status}`;
      const place = ["paths", path, method.toLowerCase(), "responses", String(status)];
      const response = document.paths[path]?.[method.toLowerCase()]?.responses[String(status)];
      if (response === undefined) throw new Error(`${answer} is not in the document`);
      for (const [name, header] of Object.entries(response.headers ?? {})) {
        const value = headers[name.toLowerCase()];
        if (value === undefined && header.required) throw new Error(`${answer} lacks the header ${name}`);
      }
      checkBody(
        answer,
        response.content,
        headers["content-type"],
        body,
        (type) => (value) => faults(schemaAt(...place, "content", type, "schema"), value),
      );
      seen.add(answer);
    },
    wrongExamples: () =>
      contents.flatMap(({ name, place, content }) =>
        Object.entries(content).flatMap(([type, { examples = {} }]) =>
          Object.values(examples).flatMap(({ value }) => {
            const wrong = faults(schemaAt(...place, type, "schema"), value);
            return wrong === "" ? [] : [`${name}: ${wrong}`];
          }),
        ),
      ),
  };
}

const FORMATS = {
  uuid: /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/,
  "date-time": /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/,
};

function checkBody(
  answer: string,
  content: Content | undefined,
  contentType: string | undefined,
  body: string,
  faultsIn: (mediaType: string) => (value: unknown) => string,
): void {
  if (content === undefined) {
    if (body !== "" || contentType !== undefined)
      throw new Error(`${answer} has a body, the document says that it has none`);
    return;
  }
  const type = Object.keys(content).find((each) => contentType === each || contentType === `${each}; charset=utf-8`);
  if (type === undefined)
    throw new Error(`${answer} has the content type ${contentType}, documented: ${Object.keys(content).join(", ")}`);
  const wrong = faultsIn(type)(type === "application/json" ? JSON.parse(body) : body);
  if (wrong !== "") throw new Error(`${answer} has a body that does not fit its schema: ${wrong}`);
}
