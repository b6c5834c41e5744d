// Package fabric studies how transports share a data centre's network: the production engine over one path and over
// several lanes, and a model of DCTCP on one path, under the same traffic in the same simulated network
// (internal/sim/fabric).
//
//	sizes.go    distributions of flow sizes that papers published
//	traffic.go  who sends what to whom, and when
//	run.go      one transport under that traffic
//	study.go    all of them: tables, figures, goals
package fabric
