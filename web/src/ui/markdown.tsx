/**
 * Markdown that somebody else has written, as React elements: no HTML is ever made from text. What
 * looks like HTML is shown as it was typed; links go to the web only, pictures are links.
 */
import { lexer, type Token, type Tokens } from "marked";
import { Fragment, memo, type ReactNode } from "react";
import { isPatch, patchLines } from "../logic/patch";
import { Patch } from "./patch";

const CHARS_MAX = 200_000;
const SAFE = /^(https?:|mailto:)/i;

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const cut = text.length > CHARS_MAX;
  const tokens = lexer(cut ? text.slice(0, CHARS_MAX) : text, { gfm: true, breaks: true });
  return (
    <div className="markdown">
      {blocks(tokens)}
      {cut && <p className="faint">Cut after {CHARS_MAX.toLocaleString()} characters.</p>}
    </div>
  );
});

function blocks(tokens: Token[] | undefined): ReactNode[] {
  return (tokens ?? []).map((token, n) => <Fragment key={n}>{BLOCKS[token.type]?.(token as never) ?? inline(token)}</Fragment>);
}

const HEADINGS = ["h3", "h4", "h5", "h6", "h6", "h6"] as const;

const BLOCKS: Record<string, (token: never) => ReactNode> = {
  space: () => null,
  hr: () => <hr />,
  paragraph: (token: Tokens.Paragraph) => <p>{inlines(token.tokens)}</p>,
  heading: (token: Tokens.Heading) => {
    const Tag = HEADINGS[token.depth - 1] ?? "h6";
    return <Tag>{inlines(token.tokens)}</Tag>;
  },
  code: (token: Tokens.Code) =>
    /^(diff|patch|udiff)\b/i.test(token.lang ?? "") || isPatch(token.text) ? (
      <Patch lines={patchLines(token.text)} />
    ) : (
      <pre tabIndex={0}>
        <code>{token.text}</code>
      </pre>
    ),
  blockquote: (token: Tokens.Blockquote) => <blockquote>{blocks(token.tokens)}</blockquote>,
  list: (token: Tokens.List) => {
    const items = token.items.map((item, n) => (
      <li key={n} className={item.task ? "task" : undefined}>
        {item.task && <span aria-label={item.checked ? "done" : "open"}>{item.checked ? "☑ " : "☐ "}</span>}
        {blocks(item.tokens.filter((one) => one.type !== "checkbox"))}
      </li>
    ));
    return token.ordered ? <ol start={token.start === "" ? 1 : token.start}>{items}</ol> : <ul>{items}</ul>;
  },
  table: (token: Tokens.Table) => (
    <div className="scroll-x" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {token.header.map((cell, n) => (
              <th key={n} className={align(token, n)}>
                {inlines(cell.tokens)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {token.rows.map((row, r) => (
            <tr key={r}>
              {row.map((cell, n) => (
                <td key={n} className={align(token, n)}>
                  {inlines(cell.tokens)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  ),
};

const align = (table: Tokens.Table, n: number): string | undefined => (table.align[n] === "right" ? "right" : undefined);

function inlines(tokens: Token[] | undefined): ReactNode[] {
  return (tokens ?? []).map((token, n) => <Fragment key={n}>{inline(token)}</Fragment>);
}

function inline(token: Token): ReactNode {
  const known = INLINE[token.type];
  if (known) return known(token as never);
  return "tokens" in token && token.tokens ? inlines(token.tokens) : "text" in token ? plain(token.text as string) : token.raw;
}

const INLINE: Record<string, (token: never) => ReactNode> = {
  html: (token: Tokens.HTML) => token.raw,
  strong: (token: Tokens.Strong) => (/^__\w+__$/.test(token.raw) ? token.raw : <strong>{inlines(token.tokens)}</strong>), // __init__ is a name
  em: (token: Tokens.Em) => <em>{inlines(token.tokens)}</em>,
  del: (token: Tokens.Del) => <del>{inlines(token.tokens)}</del>,
  codespan: (token: Tokens.Codespan) => <code>{token.text}</code>,
  br: () => <br />,
  escape: (token: Tokens.Escape) => token.text,
  image: (token: Tokens.Image) => link(token.href, token.text || token.href),
  link: (token: Tokens.Link) => link(token.href, inlines(token.tokens)),
};

function link(href: string, told: ReactNode): ReactNode {
  if (!SAFE.test(href)) return told;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {told}
    </a>
  );
}

/** marked writes entities into plain text; React would show them as they stand. */
function plain(text: string): string {
  return text
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&quot;", '"')
    .replaceAll("&#39;", "'")
    .replaceAll("&amp;", "&");
}
