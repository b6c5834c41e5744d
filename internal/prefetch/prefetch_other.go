//go:build !amd64

package prefetch

func one(*byte, int) {}

func four(_, _, _, _ *byte, _ int) {}

func load(*byte, int) {}

const amd = false
