// Package bench measures the transport and what people would use instead, and shows the results.
//
// It is made of parts that know nothing of each other:
//
//	report     the result model, latency recorder, and writers for text, CSV and JSON
//	pattern    message contents that betray every wrong byte
//	workload   the benchmarks, client and server, over the edge API
//	contender  the same work over packet sockets, TCP, UCX, libfabric and iperf3
//	figure     the paper's figures, and the page with all of them
//
// This package joins them: a Plan becomes the measurements of a series (plan.go) between hosts of a Cluster, where
// clients and servers run as processes of their own (worker.go); compare.go, cluster.go (sweeps) and demo.go are the
// runs that need more than one series. Packages kit and cli are shared with the programs that break (faults, hostile)
// and that study (scale, notify, handles, eager, ondemand, xlate).
package bench
