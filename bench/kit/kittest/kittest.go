// Package kittest is what tests of package kit's users have in common.
package kittest

import (
	"testing"

	"multiedge/bench/kit"
)

// Cluster builds hosts that are removed at the end of the test.
func Cluster(t *testing.T, spec kit.ClusterSpec) *kit.Cluster {
	t.Helper()
	c, err := kit.NewCluster(t.Context(), spec)
	Must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Must ends a test that cannot go on.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
