/* Draws the charts of a page by uPlot: each figure with data-pgqueue-chart="id" has an island of JSON with that id:
 * times (seconds since 1970), zone, unit, and lines with kind, label and values.
 *
 * Colours are those of the stylesheet, read when they are used, so a chart follows the theme. The table beside it says
 * the same to who cannot see it, or runs no scripts.
 */
(function () {
    "use strict";

    const HEIGHT = 160; // pixels
    const drawn = new Map(); // figure -> uPlot

    const sizes = new ResizeObserver(function (entries) {
        entries.forEach(function ({ target }) {
            const plot = drawn.get(target.closest("[data-pgqueue-chart]"));
            if (plot && target.clientWidth && plot.width !== target.clientWidth) {
                plot.setSize({ width: target.clientWidth, height: HEIGHT });
            }
        });
    });

    document.addEventListener("pgqueue:live", drawAll);
    new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    drawAll();

    function drawAll() {
        drawn.forEach(function (plot, figure) {
            if (!figure.isConnected) {
                sizes.unobserve(plot.root.parentElement);
                plot.destroy();
                drawn.delete(figure);
            }
        });
        document.querySelectorAll("[data-pgqueue-chart]").forEach(function (figure) {
            if (!drawn.has(figure) && figure.querySelector(".pgqueue-plot")) { // without anything to draw there is none
                draw(figure);
            }
        });
    }

    function redraw() {
        drawn.forEach((plot) => plot.redraw(false));
    }

    function draw(figure) {
        const told = JSON.parse(document.getElementById(figure.dataset.pgqueueChart).textContent);
        const place = figure.querySelector(".pgqueue-plot");
        const options = {
            width: place.clientWidth || 300,
            height: HEIGHT,
            tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), told.zone),
            legend: { show: false },
            cursor: { y: false, drag: { x: false, y: false } },
            scales: { y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
            axes: [timeAxis(told.zone), valueAxis()],
            series: [{}].concat(told.lines.map((line) => seriesOf(figure, line))),
            hooks: { setCursor: [(plot) => tell(figure, told, plot.cursor.idx)] },
        };
        drawn.set(figure, new uPlot(options, [told.times].concat(told.lines.map((line) => line.values)), place));
        sizes.observe(place);
    }

    function seriesOf(figure, line) {
        const colour = () => colourOf(figure, "--pgqueue-" + line.kind);
        const points = { show: line.values.includes(null), size: 4, fill: colour }; // one between gaps is no line
        return { label: line.label, stroke: colour, width: 2, points, spanGaps: false };
    }

    function timeAxis(zone) {
        const format = new Intl.DateTimeFormat(document.documentElement.lang || undefined, {
            hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: zone,
        });
        return axis({ size: 26, space: 60, values: (_plot, splits) => splits.map((at) => format.format(at * 1000)) });
    }

    function valueAxis() {
        return axis({ size: 46, space: 30, values: (_plot, splits) => splits.map(short) });
    }

    function axis(more) {
        return Object.assign({
            font: "11px sans-serif",
            stroke: () => colourOf(document.body, "--body-quiet-color"),
            grid: { width: 1, stroke: () => colourOf(document.body, "--hairline-color") },
            ticks: { show: false },
        }, more);
    }

    /* Says the values under the pointer, beside their labels. */
    function tell(figure, told, index) {
        figure.querySelectorAll(".pgqueue-value").forEach(function (shown, at) {
            const value = index === null || index === undefined ? null : told.lines[at].values[index];
            shown.textContent = value === null ? "" : short(value) + " " + told.unit;
        });
    }

    function short(value) {
        return new Intl.NumberFormat(document.documentElement.lang || undefined, {
            notation: "compact", maximumSignificantDigits: 3,
        }).format(value);
    }

    function colourOf(element, name) {
        return getComputedStyle(element).getPropertyValue(name).trim() || "gray";
    }
}());
