/** A small chart over days with its target as a line; a click goes to the runs behind the point. */
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useTheme } from "../theme";

interface Props {
  title: string;
  times: Date[];
  values: (number | null)[];
  target: number | undefined;
  unit: string;
  bars: boolean;
  open: (point: number) => void;
}

const HEIGHT = 140;

export default function Chart({ title, times, values, target, unit, bars, open }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const [theme] = useTheme();
  useEffect(() => {
    const element = place.current;
    if (!element) return undefined;
    const colour = (name: string): string => resolved(element, name);
    const xs = times.map((day) => day.getTime() / 1000);
    const series: uPlot.Series[] = [
      {},
      {
        stroke: colour("--accent"),
        fill: bars ? colour("--accent") : undefined,
        width: 2,
        paths: bars ? uPlot.paths.bars?.({ size: [0.6, 24] }) : undefined,
        points: { show: !bars, size: 6, fill: colour("--accent") },
        spanGaps: true,
      },
    ];
    const shown = bars ? values.map((one) => one || null) : values; // a bar of nothing would be a dash
    const data: uPlot.AlignedData = target === undefined ? [xs, shown] : [xs, shown, xs.map(() => target)];
    if (target !== undefined) series.push({ stroke: colour("--faint"), dash: [6, 4], width: 1.5, points: { show: false } });
    const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const chart = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        padding: [8, 8, 0, 0],
        cursor: { y: false, drag: { setScale: false } },
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 1) * 1.1)] } },
        series,
        axes: [
          { ...axis, values: (_, found) => found.map((one) => new Date(one * 1000).toLocaleDateString([], { day: "numeric", month: "short" })), space: 60, size: 28 },
          { ...axis, size: 52, values: (_, found) => found.map((one) => `${one}${unit}`) },
        ],
      },
      data,
      element,
    );
    const clicked = (): void => void (chart.cursor.idx != null && open(chart.cursor.idx));
    chart.over.addEventListener("click", clicked);
    const sizes = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT }));
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      chart.destroy();
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [times, values, target, unit, bars, theme]);
  const last = values.findLast((one) => one !== null);
  return <div ref={place} className="chart" role="img" aria-label={`${title}, by day; last ${last == null ? "none" : `${Math.round(last * 10) / 10}${unit}`}`} />;
}

/** A colour of the stylesheet as a canvas understands it. */
function resolved(element: HTMLElement, name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
