// SPDX-License-Identifier: GPL-2.0
// The heat map, which Grafana keeps to its own program: its axes are Grafana's, its cells and its scale are drawn here.

import {getValueFormat, formattedValueToString} from '@grafana/data';
import {UPlotChart, UPlotConfigBuilder} from '@grafana/ui';
import * as schemes from 'd3-scale-chromatic';
import {useMemo} from 'react';

const LEGEND = 34; // px

// The colors of a scheme, the smallest number first: in a dark theme the strongest color is the lightest.
function palette({scheme, steps, reverse}, theme) {
	const color = schemes[`interpolate${scheme}`];
	const inverted = theme.isDark !== Boolean(reverse);
	return Array.from({length: steps}, (_, i) => color(inverted ? 1 - i / (steps - 1) : i / (steps - 1)));
}

function format(unit, value) {
	return formattedValueToString(getValueFormat(unit)(value));
}

function configure({rows, times, step, colors, most, range, theme, unit, gap, least}) {
	const config = new UPlotConfigBuilder('utc');
	config.addScale({scaleKey: 'x', isTime: true, orientation: 0, direction: 1,
		range: () => [range.from.valueOf(), range.to.valueOf()]});
	config.addScale({scaleKey: 'y', orientation: 1, direction: 1, range: () => [0, rows.length]});
	config.addAxis({scaleKey: 'x', isTime: true, placement: 'bottom', timeZone: 'utc', theme, grid: {show: false}});
	config.addAxis({scaleKey: 'y', placement: 'left', theme, grid: {show: false}, size: 70,
		splits: () => rows.map((_, i) => i + 1),
		values: () => rows.map(({name}) => name === '+Inf' ? name : format(unit, Number(name)))});
	config.addSeries({scaleKey: 'y', theme, drawStyle: 'points', pointSize: 0, show: true});
	config.addHook('draw', (plot) => {
		rows.forEach(({values}, row) => values.forEach((count, i) => {
			if (!(count > least)) {
				return;
			}
			const left = plot.valToPos(times[i] - step, 'x', true), right = plot.valToPos(times[i], 'x', true);
			const top = plot.valToPos(row + 1, 'y', true), bottom = plot.valToPos(row, 'y', true);
			const shade = Math.min(colors.length - 1, Math.floor((count / most) * colors.length));
			plot.ctx.fillStyle = colors[shade];
			plot.ctx.fillRect(left, top + gap, Math.max(1, right - left - gap), bottom - top - gap);
		}));
	});
	return config;
}

function Scale({colors, most, unit}) {
	return <div data-scale="" style={{display: 'flex', gap: 8, alignItems: 'center', height: LEGEND, fontSize: 12}}>
		<span>0</span>
		<div style={{width: 200, height: 8, background: `linear-gradient(90deg, ${colors.join(',')})`}}/>
		<span>{format(unit, most)}</span>
	</div>;
}

export function HeatMap({panel, data, width, height, range, theme, step}) {
	const {color, yAxis, cellGap, cellValues, filterValues, legend} = panel.options;
	const [time, ...buckets] = data.frames[0].fields;
	// as Grafana does: from the lowest to the highest bucket in which something is
	const used = buckets.map(({values}) => values.some((count) => count > filterValues.le));
	const rows = buckets.slice(Math.max(0, used.indexOf(true)), used.lastIndexOf(true) + 1);
	const most = Math.max(0, ...rows.flatMap(({values}) => values));
	const colors = palette(color, theme);
	const config = useMemo(() => configure({
		rows, times: time.values, step, colors, most, range, theme, unit: yAxis.unit, gap: cellGap, least: filterValues.le,
	}), [panel, theme]);
	return <>
		<UPlotChart config={config} data={[time.values, time.values.map(() => null)]} width={width}
			height={height - (legend.show ? LEGEND : 0)}/>
		{legend.show && <Scale colors={colors} most={most} unit={cellValues.unit}/>}
	</>;
}
