package buildinfo

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	at := func(settings ...debug.BuildSetting) *debug.BuildInfo { return &debug.BuildInfo{Settings: settings} }
	clean := at(debug.BuildSetting{Key: "vcs.revision", Value: commit}, debug.BuildSetting{Key: "vcs.modified",
		Value: "false"})
	dirty := at(debug.BuildSetting{Key: "vcs.revision", Value: commit}, debug.BuildSetting{Key: "vcs.modified",
		Value: "true"})
	for _, tc := range []struct {
		linked string
		info   *debug.BuildInfo
		want   string
	}{
		{"", nil, Base}, {"", at(), Base}, {"", clean, Base + "+g0123456789ab"},
		{"", dirty, Base + "+g0123456789ab.dirty"},
		{"1.2.3", nil, "1.2.3"}, {"1.2.3", clean, "1.2.3+g0123456789ab"}, {"1.2.3+4.g5678abc", dirty,
			"1.2.3+4.g5678abc"},
	} {
		if got := version(tc.linked, tc.info); got != tc.want {
			t.Errorf("linked %q: %q, want %q", tc.linked, got, tc.want)
		}
	}
}

// make packages finds the version that programs say without it.
func TestMakefileReadsBase(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "0.0.0") || !strings.Contains(string(text), "internal/buildinfo/buildinfo.go") {
		t.Error("packages get another version than programs")
	}
}
