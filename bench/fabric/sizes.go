package fabric

import (
	"math/rand/v2"
	"slices"

	"multiedge/bench/kit"
)

// sizes is a distribution of flow sizes: the share of flows of at most so many packets of 1460 bytes, a straight line
// between two points.
type sizes struct {
	name, source string
	points       []point
}

type point struct{ packets, share float64 }

// distributions are read from figures of the papers, in the points that simulations since pFabric (Alizadeh and others,
// SIGCOMM 2013) use for them.
var distributions = []sizes{
	{"websearch", "web search, of DCTCP (Alizadeh and others, SIGCOMM 2010), figure 4", []point{{1, 0},
		{6, .15}, {13, .2}, {19, .3}, {33, .4}, {53, .53}, {133, .6}, {667, .7}, {1333, .8}, {3333, .9}, {6667, .97},
		{20000, 1}}},
	{"datamining", "data mining, of VL2 (Greenberg and others, SIGCOMM 2009), figure 2", []point{{1, .5}, {2, .6},
		{3, .7}, {7, .8}, {267, .9}, {2107, .95}, {66667, .99}, {666667, 1}}},
}

func distribution(name string) *sizes {
	i := slices.IndexFunc(distributions, func(s sizes) bool { return s.name == name })
	if i < 0 {
		kit.Fail("no workload %q: choose one of %v", name, Workloads())
	}
	return &distributions[i]
}

const packet = 1460

// mostBytes bounds a flow: a larger one would take longer than most runs, whatever the transport.
const mostBytes = 32 << 20

// at is the size that has a share of flows at most as large.
func (s *sizes) at(share float64) int {
	was := point{s.points[0].packets, 0}
	for _, p := range s.points {
		if share <= p.share {
			packets := p.packets
			if p.share > was.share {
				packets = was.packets + (p.packets-was.packets)*(share-was.share)/(p.share-was.share)
			}
			return min(max(1, int(packets*packet)), mostBytes)
		}
		was = p
	}
	return mostBytes
}

func (s *sizes) draw(dice *rand.Rand) int { return s.at(dice.Float64()) }

// mean is the mean size in bytes, of those that draw gives.
func (s *sizes) mean() float64 {
	const steps = 1 << 16
	sum := 0.0
	for i := range steps {
		sum += float64(s.at((float64(i) + 0.5) / steps))
	}
	return sum / steps
}
