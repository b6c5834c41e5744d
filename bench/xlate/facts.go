package xlate

import (
	_ "embed"
	"encoding/json"
)

//go:embed facts.json
var factsText []byte

// Facts are the founding papers' numbers, as printed, but for two: the costs of pinning and unpinning in the kernel,
// which UTLB does not print. Its table 6
// follows from its table 4 with 17.5 and 14.5 us.
var Facts = readFacts()

// Papers is what facts.json holds.
type Papers struct {
	UTLB struct {
		Paper  string            `json:"paper"`
		Costs  Costs             `json:"costs"`
		Table1 HostCosts         `json:"table1"`
		Table2 NICosts           `json:"table2"`
		Table3 map[string]Load   `json:"table3"`
		Table4 Breakdown         `json:"table4"`
		Table5 Breakdown         `json:"table5"`
		Table6 []LookupCost      `json:"table6"`
		Table7 map[string]PinRow `json:"table7"`
		Table8 []MissRow         `json:"table8"`
	} `json:"utlb"`
	DHL struct {
		Paper      string     `json:"paper"`
		Total      [2]float64 `json:"total_kib"`  // memory of the NIC: static tables, dynamic
		Lookup     [2]float64 `json:"lookup_kib"` // of it for lookups
		VMH        [2]float64 `json:"vmh_kib"`    // of it for addresses
		Delay      [2]float64 `json:"delay_us"`   // of a miss, until its handler runs: from, to
		Processing [2]float64 `json:"processing_us"`
		Overhead   float64    `json:"overhead_at_most"` // of run time, for all but one program
	} `json:"dhl"`
	VMMC struct {
		KernelCall map[string]float64 `json:"kernel_call_us"` // table 1: entry and exit
		Pages      []int              `json:"pages"`          // table 2: of a call
		PinNT      []float64          `json:"pin_nt"`         // microseconds; the row of Linux is not legible
		UnpinNT    []float64          `json:"unpin_nt"`
		Table3     map[string]HostRow `json:"table3"`
		Table4     map[string]HostRow `json:"table4"`
	} `json:"vmmc"`
}

// HostRow is a program in VMMC's table 3 or 4: rates in percent of lookups, microseconds on Windows NT.
type HostRow struct {
	Footprint float64 `json:"footprint_mb"`
	Limit     float64 `json:"limit_mb"` // of what may be pinned; 0: none
	Hit       float64 `json:"hit"`
	Unpin     float64 `json:"unpin"`
	HitCost   float64 `json:"hit_us"`
	MissCost  float64 `json:"miss_us"`
	Cost      float64 `json:"cost_us"` // of a lookup
}

// At is the cost of a lookup when so many of a hundred hit.
func (h *HostRow) At(hit float64) float64 { return h.HitCost + (100-hit)/100*h.MissCost }

// Load is a row of UTLB's table 3, for a node.
type Load struct {
	Problem   string  `json:"problem"`
	Footprint float64 `json:"footprint"` // pages
	Lookups   float64 `json:"lookups"`
}

// Breakdown is UTLB's table 4 or 5: rates by size of the cache.
type Breakdown struct {
	Sizes []int `json:"sizes"`
	Apps  map[string]struct {
		UTLB RateRows `json:"utlb"`
		Intr RateRows `json:"intr"`
	} `json:"apps"`
}

// RateRows are rates by size of the cache.
type RateRows struct {
	Check []float64 `json:"check"`
	NI    []float64 `json:"ni"`
	Unpin []float64 `json:"unpin"`
}

// At returns the rates of one size.
func (r RateRows) At(i int) Rates {
	v := Rates{NI: r.NI[i], Unpin: r.Unpin[i]}
	if len(r.Check) > 0 {
		v.Check = r.Check[i]
	}
	return v
}

// LookupCost is a cell of UTLB's table 6, in microseconds.
type LookupCost struct {
	Entries int     `json:"entries"`
	App     string  `json:"app"`
	UTLB    float64 `json:"utlb"`
	Intr    float64 `json:"intr"`
}

// PinRow is a column of UTLB's table 7: microseconds for each lookup when one page is pinned at a time, and sixteen.
type PinRow struct {
	Pin   [2]float64 `json:"pin"`
	Unpin [2]float64 `json:"unpin"`
}

// MissRow is a row of UTLB's table 8. Its values are sorted, whatever the columns' heads say: the row "1 K direct" has
// those of table 4 in rising order.
type MissRow struct {
	Entries int       `json:"entries"`
	Cache   string    `json:"cache"`
	Values  []float64 `json:"values"`
}

func readFacts() *Papers {
	var p Papers
	if err := json.Unmarshal(factsText, &p); err != nil {
		panic("BUG: xlate: facts.json: " + err.Error())
	}
	return &p
}
