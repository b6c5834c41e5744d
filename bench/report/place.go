package report

import "slices"

// Ways and states of the test Place, as its rows' variants name them.
const (
	PlaceCopy, PlaceExchange = "copy", "exchange"
	PlaceWarm, PlaceCold     = "warm", "cold" // whether a cache holds the place
)

// PlaceVariant is the variant of rows of a way in a state.
func PlaceVariant(way, state string) string { return way + ", " + state }

// Crossover says from which size on, of those measured, the median exchange of pages is cheaper than the median copy in
// a state: at that size and all larger ones. It is 0 when copying wins at the largest.
func Crossover(rows []Row, state string) int {
	cost := map[string]map[int]float64{}
	var sizes []int
	for i := range rows {
		r := &rows[i]
		if r.Test != Place {
			continue
		}
		if cost[r.Variant] == nil {
			cost[r.Variant] = map[int]float64{}
		}
		cost[r.Variant][r.MessageBytes] = r.Latency.P50
		sizes = append(sizes, r.MessageBytes)
	}
	slices.Sort(sizes)
	from := 0
	for _, size := range slices.Backward(slices.Compact(sizes)) {
		exchange, ok := cost[PlaceVariant(PlaceExchange, state)][size]
		if !ok || exchange >= cost[PlaceVariant(PlaceCopy, state)][size] {
			break
		}
		from = size
	}
	return from
}

// CrossoverText says in words where exchanging pages begins to pay.
func CrossoverText(rows []Row) string {
	where := func(state string) string {
		if n := Crossover(rows, state); n > 0 {
			return "from runs of " + Bytes(n) + " on"
		}
		return "at none of these sizes"
	}
	return "exchanging pages is cheaper than copying " + where(PlaceCold) + " when no cache holds the place, " +
		where(PlaceWarm) + " when one does"
}
