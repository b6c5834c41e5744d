package figure

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"

	"multiedge/bench/report"
)

// sizeTicks labels a logarithmic axis of message sizes at powers of two, as many as are readable.
type sizeTicks struct{}

func (sizeTicks) Ticks(lo, hi float64) []plot.Tick {
	from, to := int(math.Ceil(math.Log2(max(lo, 1))-1e-9)), int(math.Floor(math.Log2(max(hi, 1))+1e-9))
	step := 1
	for (to-from)/step > 8 {
		step *= 2
	}
	var ticks []plot.Tick
	for e := from; e <= to; e++ {
		t := plot.Tick{Value: math.Exp2(float64(e))}
		if e%step == 0 {
			t.Label = shortSize(1 << e)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// shortSize is a size for an axis: 64, 4K, 1M.
func shortSize(n int) string {
	s := report.Bytes(n)
	s = strings.TrimSuffix(strings.TrimSuffix(s, "iB"), " B")
	return strings.ReplaceAll(s, " ", "")
}

// linearTicks labels a linear axis at multiples of 1, 2 or 5 times a power of ten.
type linearTicks struct{}

func (linearTicks) Ticks(lo, hi float64) []plot.Tick {
	step := niceStep(hi - lo)
	var ticks []plot.Tick
	for i := math.Ceil(lo/step - 1e-9); i*step <= hi*(1+1e-9); i++ {
		v := i*step + 0 // plus zero: no negative zero
		ticks = append(ticks, plot.Tick{Value: v, Label: number(v)})
	}
	return ticks
}

// niceStep divides span into about five parts of a round size.
func niceStep(span float64) float64 {
	if !(span > 0) {
		return 1
	}
	base := math.Pow(10, math.Floor(math.Log10(span/5)))
	for _, m := range []float64{1, 2, 5} {
		if span/(m*base) <= 6 {
			return m * base
		}
	}
	return 10 * base
}

// niceMax rounds v up to the next tick, so that the topmost label is at the top of the axis.
func niceMax(v float64) float64 {
	step := niceStep(v)
	return math.Ceil(v/step-1e-9) * step
}

// logTicks labels a logarithmic axis at powers of ten, and between them when there are few.
type logTicks struct{}

func (logTicks) Ticks(lo, hi float64) []plot.Tick {
	decades := math.Log10(hi / lo)
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for m := 1.0; m < 10; m++ {
			v := m * math.Pow(10, e)
			if v < lo*(1-1e-9) || v > hi*(1+1e-9) {
				continue
			}
			t := plot.Tick{Value: v}
			if m == 1 || decades < 3 && (m == 2 || m == 5) || decades < 1 && (m == 3 || m == 7) {
				t.Label = number(v)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// number formats an axis value without needless zeros, thousands as 1,000.
func number(v float64) string {
	if math.Abs(v) >= 1000 && v == math.Trunc(v) {
		s := strconv.FormatFloat(v, 'f', 0, 64)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	}
	return strconv.FormatFloat(math.Round(v*1e9)/1e9, 'g', -1, 64)
}

// significant formats a value on a bar: three digits.
func significant(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
