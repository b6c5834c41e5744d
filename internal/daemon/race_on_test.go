//go:build race

package daemon

// raceDetector: the detector itself allocates.
const raceDetector = true
