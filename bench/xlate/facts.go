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
		Paper    string     `json:"paper"`
		VMH      [2]float64 `json:"vmh_kib"`          // memory of the NIC for addresses: static tables, dynamic
		Delay    [2]float64 `json:"delay_us"`         // of a miss, until its handler runs: from, to
		Service  [2]float64 `json:"processing_us"`    // of a miss, by its handler: from, to
		Overhead float64    `json:"overhead_at_most"` // of run time, for all but one program
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

// Costs are what the parts of a lookup cost in microseconds (UTLB §6.2).
type Costs struct {
	UserCheck   float64 `json:"user_check"`
	NICheck     float64 `json:"ni_check"`
	UserPin     float64 `json:"user_pin"`
	UserUnpin   float64 `json:"user_unpin"`
	NIMiss      float64 `json:"ni_miss"`
	Interrupt   float64 `json:"interrupt"`
	KernelPin   float64 `json:"kernel_pin"`
	KernelUnpin float64 `json:"kernel_unpin"`
}

// Rates are how often the parts happen for each lookup.
type Rates struct {
	Check float64 `json:"check_misses"` // found unpinned by the user's library
	NI    float64 `json:"ni_misses"`
	Unpin float64 `json:"unpins"`
}

// UTLB is the mean cost of a lookup with the user-managed TLB, one page pinned at a time and one entry fetched.
func (c *Costs) UTLB(r Rates) float64 {
	return c.UserCheck + c.UserPin*r.Check + c.NICheck + c.NIMiss*r.NI + c.UserUnpin*r.Unpin
}

// Intr is that of the mechanism whose network interface interrupts the host when it misses.
func (c *Costs) Intr(r Rates) float64 {
	return c.NICheck + (c.Interrupt+c.KernelPin)*r.NI + c.KernelUnpin*r.Unpin
}

// PerProcess is that of a table for each process on the network interface, which cannot miss there (UTLB §3.1).
func (c *Costs) PerProcess(r Rates) float64 {
	return c.UserCheck + c.UserPin*r.Check + c.NICheck + c.UserUnpin*r.Unpin
}

// HostCosts is UTLB's table 1: microseconds by pages of one call.
type HostCosts struct {
	Pages    []float64 `json:"pages"`
	CheckMin []float64 `json:"check_min"`
	CheckMax []float64 `json:"check_max"`
	Pin      []float64 `json:"pin"`
	Unpin    []float64 `json:"unpin"`
}

// NICosts is UTLB's table 2: microseconds by entries of one fetch, and the cost of a hit, which its head says.
type NICosts struct {
	Entries []float64 `json:"entries"`
	Hit     float64   `json:"hit"`
	DMA     []float64 `json:"dma"`
	Miss    []float64 `json:"miss"`
}

// between reads a table at x, straight between its points and beyond the last two.
func between(xs, ys []float64, x float64) float64 {
	i := 1
	for i < len(xs)-1 && x > xs[i] {
		i++
	}
	return ys[i-1] + (ys[i]-ys[i-1])*(x-xs[i-1])/(xs[i]-xs[i-1])
}
