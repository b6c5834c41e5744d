// Package figure draws benchmark results as the paper draws its own (chapter 3): throughput and latency over message
// size, processor utilization as stacked bars, schedulers side by side, and comparisons with other transports. Figures
// come as SVG, as PNG and all together as one HTML page that needs nothing from anywhere else.
//
// The way from results to ink: rows (package report) are grouped into curves (select.go), curves and bars into panels,
// panels into a Figure (figures.go), and a Figure is drawn on a canvas of any format (draw.go).
package figure
