/**
 * Calls to the API. What cannot be reached is `Unreachable`, what is refused is a `Problem`; nothing
 * else is thrown. A change carries the session's mark, and a key that makes a repeat harmless.
 */
import type { Place } from "./schema";

const API = "/api/v1";
const SECONDS = 60;

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly errors: readonly Place[] = [],
  ) {
    super(detail);
  }
}

export class Unreachable extends Error {}

let mark = "";

/** The session's own mark, without which nothing is changed. */
export function setMark(csrf: string | null): void {
  mark = csrf ?? "";
}

interface Options {
  body?: unknown;
  accept?: string;
  signal?: AbortSignal;
  key?: string; // of a change that may be sent again; else each has its own
}

export async function get<T>(path: string, options: Options = {}): Promise<T> {
  return ask<T>("GET", path, options);
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  return ask<T>("POST", path, { body });
}

export async function ask<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const answer = await reach(method, path, options);
  if (answer.status === 204) return undefined as T;
  const text = await textOf(answer);
  const isJson = (answer.headers.get("content-type") ?? "").includes("json");
  return (isJson ? JSON.parse(text) : text) as T;
}

/** The answer to a GET as it came. */
export async function read(path: string): Promise<string> {
  return textOf(await reach("GET", path, {}));
}

async function textOf(answer: Response): Promise<string> {
  const text = await answer.text().catch(() => Promise.reject(new Unreachable("the answer broke off")));
  if (!answer.ok) throw problem(answer.status, text);
  return text;
}

/** Server-sent events, as they come; the caller reads the body. */
export async function follow(path: string, last: string, signal: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = last ? { "Last-Event-ID": last } : {};
  const answer = await fetch(API + path, { headers, signal, cache: "no-store" });
  if (!answer.ok) throw problem(answer.status, await answer.text());
  return answer;
}

async function reach(method: string, path: string, options: Options): Promise<Response> {
  const headers: Record<string, string> = { Accept: options.accept ?? "application/json" };
  if (method !== "GET") headers["X-CSRF-Token"] = mark;
  if (method === "POST") headers["Idempotency-Key"] = options.key ?? newKey();
  const isForm = options.body instanceof FormData;
  if (options.body !== undefined && !isForm) headers["Content-Type"] = "application/json";
  const body = isForm ? (options.body as FormData) : JSON.stringify(options.body);
  const signal = options.signal ?? AbortSignal.timeout(SECONDS * 1000);
  try {
    // not kept: else a browser lets the same question of two tabs wait for each other
    return await fetch(API + path, { method, headers, body, signal, cache: "no-store" });
  } catch {
    throw new Unreachable("the server cannot be reached");
  }
}

/** Also where `crypto.randomUUID` is missing: on plain http from another machine. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
}

function problem(status: number, text: string): Problem {
  try {
    const told = JSON.parse(text) as { code?: string; detail?: string; errors?: Place[] };
    return new Problem(status, told.code ?? "", told.detail ?? `status ${status}`, told.errors);
  } catch {
    return new Problem(status, "", `the server answered with status ${status}`);
  }
}

/** A path with its query; what is empty is left out. */
export function path(base: string, query: Record<string, string | number | boolean | null | undefined>): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  if (!given.length) return base;
  return `${base}?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
}

export const part = encodeURIComponent;
