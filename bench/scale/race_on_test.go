//go:build race

package scale

// raceDetector: the detector keeps shadow memory for every page that a heap ever had, so resident memory does not fall.
const raceDetector = true
