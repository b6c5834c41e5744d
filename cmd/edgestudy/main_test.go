package main

import (
	"testing"

	"multiedge/bench/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m.Run, run) }

func TestMistakesAreExplained(t *testing.T) {
	clitest.Explained(t, "edgestudy", []clitest.Mistake{
		{Args: "scale peer --lab-mtu 1500", Code: 2, Want: "add --lab"},
		{Args: "scale", Code: 1, Want: "edgestudy scale --serve"},
		{Args: "scale --lab --conns 0", Code: 1, Want: "--conns"},
		{Args: "notify", Code: 1, Want: "add --lab"},
		{Args: "eager --lab -s 8", Code: 1, Want: "64 to 64k"},
		{Args: "ondemand --lab --embedded", Code: 1, Want: "leave out --embedded"},
		{Args: "handles --exports 5", Code: 1, Want: "--exports"},
		{Args: "splash", Code: 1, Want: "add --lab"},
		{Args: "splash --lab quake", Code: 1, Want: "no kernel"},
		{Args: "splash --lab --size lu=100", Code: 1, Want: "multiple of 16"},
		{Args: "splash --lab --lab-hosts 3", Code: 1, Want: "leave out --lab-hosts"},
		{Args: "splash --lab --cut", Code: 1, Want: "--lab-links 2"},
		{Args: "utlb --only (", Code: 1, Want: "--only"},
		{Args: "utlb --trace /proc/version --apps fft", Code: 1, Want: "leave out --apps"},
		{Args: "dhl --apps quake", Code: 1, Want: "no kernel"},
	})
}
