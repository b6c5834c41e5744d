package shard

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	LendAfter = 0 // links are lent whenever there is something on them
	goleak.VerifyTestMain(m)
}
