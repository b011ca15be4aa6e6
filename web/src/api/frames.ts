/** Server-sent events taken apart: pieces of text go in, whole events come out. */
export interface Frame {
  id: string;
  type: string;
  data: string;
}

export class Frames {
  private rest = "";

  /** What this piece completes. A comment completes a frame without data, which is left out. */
  take(piece: string): Frame[] {
    const blocks = (this.rest + piece).split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.map(frame).filter((one) => one.data !== "" || one.id !== "");
  }
}

function frame(block: string): Frame {
  const found: Frame = { id: "", type: "message", data: "" };
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    if (at <= 0) continue;
    const name = line.slice(0, at);
    const value = line.slice(at + 1).replace(/^ /, "");
    if (name === "id") found.id = value;
    else if (name === "event") found.type = value;
    else if (name === "data") found.data += found.data ? `\n${value}` : value;
  }
  return found;
}
