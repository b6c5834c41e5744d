package figure

import "slices"

// Exhibit is a figure or a table of one of the five founding papers: MultiEdge is Passas 2008, UTLB Chen 1998, DHL
// Azimi and Bilas, VMMC Chen 1999, EDT Won 2008. Diagrams and set-up are left out.
type Exhibit struct {
	Paper, Name, What string

	Figures []string // IDs of those drawn of it here
	Study   string   // the edgestudy command that draws or prints it, and judges it, on a page of its own
	Differs string   // what is drawn otherwise than in the paper
	Why     string   // why nothing draws it
}

// Drawn says by what an exhibit is drawn.
func (e *Exhibit) Drawn() bool { return len(e.Figures) > 0 || e.Study != "" }

// Exhibits lists all of them, in the order of the papers.
func Exhibits() []Exhibit {
	return slices.Concat(multiedge, utlb, dhl, vmmc, edt)
}

var multiedge = []Exhibit{
	{"MultiEdge", "figure 3.1", "latency and throughput over message size, by number of links",
		[]string{"latency", "throughput", "links", "papers"}, "", "one and two links; up to eight of one size", ""},
	{"MultiEdge", "figure 3.2", "what processor time goes to", []string{"cpu", "papers"}, "", "one and two links", ""},
	{"MultiEdge", "figure 3.3", "polling instead of interrupts", []string{"polling", "polling-cpu", "papers"}, "",
		"one link", ""},
	{"MultiEdge", "figure 3.4", "no copies",
		[]string{"zero-copy", "zero-copy-cpu", "papers"}, "", "one link (nocp)", ""},
	{"MultiEdge", "figure 3.5", "schedulers over unequal links", []string{"schedulers", "papers"}, "",
		"one-way; 4:1:1:1:1 beside the paper's rates", ""},
	{"MultiEdge", "figure 3.6", "copies of memory",
		[]string{"exchange", "papers"}, "", "time instead of throughput", ""},
	{"MultiEdge", "figure 3.7", "pinning and remapping pages", []string{"exchange", "papers"}, "utlb",
		"remapping by the figure, pinning by edgestudy utlb (VMMC table 2)", ""},
	{"MultiEdge", "figure 3.8", "copies left out one by one",
		[]string{"zero-copy", "zero-copy-cpu", "papers"}, "", "", ""},
	{"MultiEdge", "figure 3.9", "the same: latency", []string{"zero-copy-latency", "papers"}, "", "", ""},
	{"MultiEdge", "figure 3.10", "ways to invalidate the TLB", nil, "", "",
		"they are the kernel's to choose; a program without a module has one"},
	{"MultiEdge", "figure 3.11", "alignment of the destination", []string{"alignment", "papers"}, "", "", ""},
	{"MultiEdge", "table 3.1", "reads and writes of memory, by processor and node", nil, "", "",
		"the paper's hosts have memory on each of two processors; edgebench machine has copies on this one"},
	{"MultiEdge", "table 3.2", "the cost of an ioctl, a kernel buffer, pinning, remapping",
		[]string{"exchange"}, "utlb",
		"remapping and pinning alone; edgebench machine measures the system call; kernel buffers need a module", ""},
}

var utlb = []Exhibit{
	{"UTLB", "table 1", "a check, pinning and unpinning on the host", nil, "ondemand", "", ""},
	{"UTLB", "table 2", "a hit and a miss on the network interface", nil, "ondemand",
		"there is no interface with a memory of its own: the daemon's cache and table", ""},
	{"UTLB", "table 3", "the programs", nil, "utlb", "kernels of this project; no Raytrace, no Volrend", ""},
	{"UTLB", "table 4", "misses and unpinning, unlimited memory", nil, "utlb", "", ""},
	{"UTLB", "table 5", "the same, 4 MB for each process", nil, "utlb", "", ""},
	{"UTLB", "table 6", "the cost of a lookup", nil, "utlb", "", ""},
	{"UTLB", "table 7", "pinning ahead", nil, "utlb", "", ""},
	{"UTLB", "table 8", "index offset and associativity", nil, "utlb", "", ""},
	{"UTLB", "figure 7", "kinds of misses", nil, "utlb", "", ""},
	{"UTLB", "figure 8", "prefetching", nil, "utlb", "", ""},
}

var dhl = []Exhibit{
	{"DHL", "figure 3", "memory of lookups on the network interface", nil, "dhl", "addresses alone", ""},
	{"DHL", "figure 4", "latency and bandwidth over the share of misses", nil, "ondemand",
		"beside it what daemons do that let misses wait (misses = park)", ""},
	{"DHL", "figure 5", "misses by size of the cache", nil, "dhl", "", ""},
	{"DHL", "figure 6", "speedup", nil, "dhl", "", ""},
	{"DHL", "figure 7", "time by part", nil, "dhl", "", ""},
	{"DHL", "distribution", "how long a miss takes, until its handler begins and by it", nil, "ondemand", "", ""},
}

var vmmc = []Exhibit{
	{"VMMC", "table 1", "entry into the kernel", nil, "utlb", "", ""},
	{"VMMC", "table 2", "pinning and unpinning", nil, "utlb", "", ""},
	{"VMMC", "table 3", "the UTLB without a limit of memory", nil, "utlb", "at the paper's costs; 4 of 7 programs", ""},
	{"VMMC", "table 4", "the UTLB with a limit", nil, "utlb", "at the paper's costs; 4 programs", ""},
	{"VMMC", "figure 5", "latency of a send", []string{"latency"}, "", "writes of 64 bytes and more", ""},
	{"VMMC", "figure 6", "bandwidth of sends", []string{"throughput"}, "", "writes", ""},
	{"VMMC", "figure 7", "latency of a fetch", []string{"latency"}, "", "reads", ""},
	{"VMMC", "figure 8", "bandwidth of fetches", []string{"throughput"}, "", "reads", ""},
	{"VMMC", "figure 9", "the receiver's overhead of a notification", nil, "notify", "", ""},
}

var edt = []Exhibit{
	{"EDT", "figure 8", "latency of messages that travel while they are composed", nil, "eager", "", ""},
	{"EDT", "figure 9", "what a message of 256 bytes spends its time on", nil, "eager", "", ""},
}
