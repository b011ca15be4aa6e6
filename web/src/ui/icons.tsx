/** The page's icons, drawn with one pen: 16 by 16, strokes of 1.5. */
const PATHS = {
  inbox: "M2 9.500h3.500l1 2h3l1-2H14M2 9.500 4 3.500h8l2 6v3.500H2z",
  runs: "M2.500 4h7M2.500 8h11M2.500 12h5M12 2.500l2 1.500-2 1.500",
  definitions: "M2 2.500h5v4H2zM9 9.500h5v4H9zM4.500 6.500v5H9",
  channels: "M2.500 3h11v7.500h-6l-3 3v-3h-2z",
  agents: "M8 7.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM3 13.500c.5-3 2.500-4 5-4s4.500 1 5 4",
  figures: "M2 13.500h12M4 11V7.500M8 11V3M12 11V5.500",
  memory: "M8 2.500c3.300 0 5.500.8 5.500 2s-2.200 2-5.500 2-5.500-.8-5.500-2 2.200-2 5.500-2zM2.500 4.500v7c0 1.200 2.200 2 5.500 2s5.500-.8 5.500-2v-7M2.500 8c0 1.200 2.200 2 5.500 2s5.500-.8 5.500-2",
  audit: "M8 1.500 13.500 4v4c0 3-2.200 5.500-5.500 6.500C4.700 13.500 2.500 11 2.500 8V4zM5.500 8l2 2 3-3.500",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.800 10.800 14 14",
  sun: "M8 10.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM8 1.500v1.500M8 13v1.500M1.500 8H3M13 8h1.500M3.500 3.500l1 1M11.500 11.500l1 1M12.500 3.500l-1 1M4.500 11.500l-1 1",
  moon: "M13 9.500A5.500 5.500 0 0 1 6.500 3 5.500 5.500 0 1 0 13 9.500z",
  system: "M2 3h12v8H2zM6 13.500h4",
  running: "M8 2a6 6 0 1 1-6 6M8 5v3l2 1.500",
  diamond: "M8 2l6 6-6 6-6-6z",
  pause: "M5.500 3.500v9M10.500 3.500v9",
  check: "M3 8.500l3.500 3.500L13 4.500",
  half: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 2v12M8 5h4.500M8 8h6M8 11h4.500",
  cross: "M4 4l8 8M12 4l-8 8",
  barred: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM4 4l8 8",
  square: "M4 4h8v8H4z",
  person: "M8 7.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM3 13.500c.5-3 2.500-4 5-4s4.500 1 5 4",
  again: "M13 8a5 5 0 1 1-1.500-3.500M13 2v3h-3",
  more: "M3.500 8h.01M8 8h.01M12.500 8h.01",
  back: "M10 3 5 8l5 5",
  play: "M5 3l7 5-7 5z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className={`icon icon-${name}`} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
