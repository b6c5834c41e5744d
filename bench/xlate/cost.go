package xlate

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

// NICosts is UTLB's table 2: microseconds by entries of one fetch.
type NICosts struct {
	Entries []float64 `json:"entries"`
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
