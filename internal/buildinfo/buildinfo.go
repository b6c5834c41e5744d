// Package buildinfo says which version of the sources a program was built from.
package buildinfo

import (
	"runtime/debug"
	"strings"
)

// Base is the version of these sources; make packages reads it here.
const Base = "0.1.0"

// Version returns the version of this program: what the linker was given (-ldflags "-X main.version=1.2.3"), else Base,
// with the commit behind it where the build knows that: 0.1.0+g0123456789ab, and .dirty if files were changed since.
func Version(linked string) string {
	info, _ := debug.ReadBuildInfo()
	return version(linked, info)
}

// Revision returns the whole commit; empty if the build does not know it.
func Revision() string {
	info, _ := debug.ReadBuildInfo()
	return setting(info, "vcs.revision")
}

func version(linked string, info *debug.BuildInfo) string {
	if linked == "" {
		linked = Base
	}
	commit := setting(info, "vcs.revision")
	if commit == "" || strings.Contains(linked, "+") { // what make packages gives names it
		return linked
	}
	linked += "+g" + commit[:min(len(commit), 12)]
	if setting(info, "vcs.modified") == "true" {
		linked += ".dirty"
	}
	return linked
}

func setting(info *debug.BuildInfo, key string) string {
	if info == nil {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
