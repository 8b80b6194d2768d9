import { readFileSync } from "node:fs";
import { Agent, request } from "undici";

/** An object of the API, as far as the tests look into it. */
// biome-ignore lint/suspicious/noExplicitAny: the API server checks the shape
export type KubeObject = any;

/** A call that the API server refused. */
export class ApiError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export interface ApiAccess {
  /** `https://host:port`. */
  readonly url: string;
  readonly token: string;
  /** File with the certificate of the server, which it signed itself. */
  readonly certificate: string;
}

/** Calls an API server. Paths are those of its REST API, such as `/api/v1/pods`. */
export class Api {
  readonly #access: ApiAccess;
  readonly #agent: Agent;

  constructor(access: ApiAccess) {
    this.#access = access;
    this.#agent = new Agent({ connect: { ca: readFileSync(access.certificate) }, connections: 8 });
  }

  async get(path: string): Promise<KubeObject> {
    return await this.#call("GET", path);
  }

  async list(path: string): Promise<readonly KubeObject[]> {
    return (await this.get(path)).items;
  }

  async create(path: string, object: KubeObject): Promise<KubeObject> {
    return await this.#call("POST", path, object);
  }

  /** @param change as a merge patch */
  async patch(path: string, change: KubeObject): Promise<KubeObject> {
    return await this.#call("PATCH", path, change, "application/merge-patch+json");
  }

  async delete(path: string, options: KubeObject = {}): Promise<void> {
    await this.#call("DELETE", path, options);
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }

  async #call(method: "GET" | "POST" | "PATCH" | "DELETE", path: string, body?: KubeObject, type = "application/json") {
    const answer = await request(`${this.#access.url}${path}`, {
      method,
      dispatcher: this.#agent,
      headers: { authorization: `Bearer ${this.#access.token}`, "content-type": type },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.body.text();
    if (answer.statusCode >= 300) {
      throw new ApiError(
        answer.statusCode,
        `${method} ${path} was answered ${answer.statusCode}: ${text.slice(0, 500)}`,
      );
    }
    return JSON.parse(text) as KubeObject;
  }
}

/** @returns whether a call failed with this status */
export function isStatus(error: unknown, status: number): boolean {
  return error instanceof ApiError && error.status === status;
}
