/**
 * What happens on the server, as it happens: one stream for all open tabs of a browser.
 *
 * A browser keeps only six connections to a server, so one tab follows and tells the others; when it
 * is closed, the next one takes over. Where the browser cannot share (plain http from another
 * machine), every tab follows for itself. Whoever comes back asks for what it has missed.
 */
import { useSyncExternalStore } from "react";
import { follow, Problem } from "./client";
import { next, pause, type Connection, type Signal } from "./connection";
import { Frames } from "./frames";
import type { HistoryEvent } from "./schema";

const OPEN_MS = 500;
const SILENCE_SECONDS = 45; // the server says something at least every 15
const NAME = "handrail-live";

type Told = { event: HistoryEvent; id: string } | { connection: Connection } | { hello: true };
type Hears = (event: HistoryEvent) => void;

let connection: Connection = { kind: "connecting" };
let last = "";
let leads = false;
let late = false; // something was asked before anything was followed
const watchers = new Set<() => void>();
const listeners = new Set<Hears>();
const returns = new Set<() => void>();
const channel = "BroadcastChannel" in window ? new BroadcastChannel(NAME) : null;

export function useConnection(): Connection {
  return useSyncExternalStore(
    (changed) => (watchers.add(changed), () => watchers.delete(changed)),
    () => connection,
  );
}

/** Every event from now on, until the returned function is called. */
export function listen(hears: Hears): () => void {
  listeners.add(hears);
  return () => listeners.delete(hears);
}

/** Of the last event that was heard; empty before the first. */
export const position = (): string => last;

/** Called when the connection is there again: what is shown may be old. */
export function onReturn(back: () => void): () => void {
  returns.add(back);
  return () => returns.delete(back);
}

/** Follows from now on. When it has begun, or is late: what is asked from then on misses nothing. */
export function begin(): Promise<void> {
  channel?.addEventListener("message", (message: MessageEvent<Told>) => hear(message.data));
  channel?.postMessage({ hello: true } satisfies Told);
  if (channel && "locks" in navigator) void navigator.locks.request(NAME, lead);
  else void lead();
  window.addEventListener("online", () => wake?.());
  return new Promise((go) => {
    const timer = setTimeout(() => done(), OPEN_MS);
    const done = (): void => {
      if (connection.kind === "connecting") late = true;
      clearTimeout(timer);
      watchers.delete(done);
      go();
    };
    watchers.add(done);
  });
}

function hear(told: Told): void {
  if ("event" in told) {
    last = told.id; // whoever takes over goes on from here
    listeners.forEach((one) => one(told.event));
  } else if ("connection" in told) stand(told.connection);
  else if (leads) channel?.postMessage({ connection } satisfies Told);
}

function stand(now: Connection): void {
  const isBack = now.kind === "live" && connection.kind !== "live" && (late || connection.kind !== "connecting");
  connection = now;
  watchers.forEach((one) => one());
  if (isBack) returns.forEach((one) => one());
}

function tell(signal: Signal): void {
  stand(next(connection, signal, Date.now()));
  channel?.postMessage({ connection } satisfies Told);
}

let wake: (() => void) | null = null;

/** Follows until the tab is closed, or nobody is signed in. */
async function lead(): Promise<void> {
  leads = true;
  while (connection.kind !== "signed out") {
    try {
      await stream();
      tell("lost");
    } catch (error) {
      const out = error instanceof Problem && error.status === 401;
      if (error instanceof Problem && error.status === 422) last = "";
      tell(out ? "refused" : "lost");
    }
    await new Promise<void>((go) => {
      wake = go;
      setTimeout(go, pause(connection) * 1000);
    });
  }
}

async function stream(): Promise<void> {
  const stop = new AbortController();
  let quiet = setTimeout(() => stop.abort(), SILENCE_SECONDS * 1000);
  try {
    const answer = await follow("/events", last, stop.signal);
    tell("opened");
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    const frames = new Frames();
    for (let got = await reader?.read(); got && !got.done; got = await reader?.read()) {
      clearTimeout(quiet);
      quiet = setTimeout(() => stop.abort(), SILENCE_SECONDS * 1000);
      for (const frame of frames.take(got.value)) {
        if (frame.id) last = frame.id;
        if (frame.data) pass({ event: JSON.parse(frame.data) as HistoryEvent, id: frame.id });
      }
    }
  } finally {
    clearTimeout(quiet);
    stop.abort();
  }
}

function pass(told: { event: HistoryEvent; id: string }): void {
  listeners.forEach((one) => one(told.event));
  channel?.postMessage(told satisfies Told);
}
