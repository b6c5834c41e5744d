// Package layering holds the test that imports point downward only (docs/ARCHITECTURE.md).
package layering

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// allowed lists which packages of the project each package may import; a name covers the packages below it. Test files
// may import more.
var allowed = map[string]string{
	"cmd": "internal/forward internal/identity internal/secure edge bench sched internal/config " +
		"internal/inspect internal/daemon internal/metrics internal/ipc internal/trace internal/mono internal/lab " +
		"internal/buildinfo internal/clidoc",
	"bench": "bench internal/secure internal/aesgcm edge internal/lab internal/ipc " +
		"internal/config internal/inspect internal/mono linkdrv remap",
	"bench/kit": "bench/report bench/kit internal/identity internal/secure edge internal/lab internal/ipc " +
		"internal/config internal/daemon linkdrv",
	"bench/cli":     "bench/kit bench/machine bench/report internal/lab internal/buildinfo internal/clidoc sched",
	"bench/hostile": "bench/raw internal/ipc",
	"bench/raw":     "internal/ipc",
	"edge": "edge/internal/inner internal/abi internal/secure internal/ipc internal/config internal/daemon " +
		"internal/idle internal/mono linkdrv regmem",
	// above edge, and not of each other but of what they are made of
	"edge/stream":          "edge edge/internal/inner internal/ipc internal/mono",
	"edge/named":           "edge edge/internal/inner internal/ipc",
	"edge/catalog":         "edge edge/internal/inner internal/ipc",
	"edge/space":           "edge edge/internal/inner internal/ipc regmem",
	"edge/heap":            "edge edge/internal/inner regmem",
	"edge/atomics":         "edge internal/abi",
	"edge/dsm":             "edge edge/atomics internal/mono",
	"edge/dsm/dsmprom":     "edge/dsm",
	"edge/events":          "edge edge/internal/inner",
	"edge/compose":         "edge edge/internal/inner internal/ipc",
	"edge/redirect":        "edge edge/internal/inner",
	"edge/node":            "edge edge/internal/inner internal/inspect internal/secure",
	"edge/fabric":          "edge edge/internal/inner edge/internal/memnet internal/config linkdrv",
	"edge/internal/inner":  "internal/ipc",
	"edge/internal/memnet": "linkdrv linkdrv/linktest",
	"edge/examples":        "edge",
	"edge/preload/test":    "edge",
	"internal/forward":     "edge",
	// wire: an adversary makes frames
	"bench/faults": "bench edge internal/identity internal/secure internal/lab internal/ipc internal/config " +
		"internal/inspect internal/daemon internal/metrics internal/ethtool internal/wire linkdrv",
	"internal/metrics": "internal/config internal/inspect internal/daemon internal/engine " +
		"internal/hist internal/buildinfo internal/forward linkdrv",
	"bench/eager":    "bench edge internal/engine internal/mono internal/sim",
	"bench/fabric":   "bench internal/mono internal/sim",
	"bench/fairness": "bench internal/sim flowctl",
	"bench/handles":  "bench edge regmem",
	"bench/notify":   "bench edge internal/inspect internal/ipc internal/mono internal/trace",
	"bench/ondemand": "bench edge internal/config internal/inspect regmem",
	"bench/xlate":    "bench edge/dsm regmem",
	"internal/daemon": "internal/inspect internal/shard internal/config internal/identity internal/engine " +
		"internal/secure internal/ipc internal/trace internal/mono linkdrv regmem",
	"internal/inspect": "internal/shard internal/config internal/identity internal/engine internal/hist " +
		"internal/wire internal/secure internal/aesgcm internal/ipc internal/trace internal/mono internal/ethtool " +
		"linkdrv regmem",
	"internal/shard": "internal/config internal/engine internal/secure internal/ipc internal/idle internal/mono " +
		"linkdrv regmem remap flowctl sched",
	"internal/config": "internal/identity internal/engine internal/wire internal/secure internal/ipc linkdrv regmem " +
		"flowctl sched",
	"internal/sim": "internal/engine internal/fault internal/frame internal/wire internal/secure internal/mono " +
		"flowctl regmem sched",
	"internal/lab":   "internal/fault internal/mono internal/ethtool linkdrv",
	"internal/fault": "internal/mono",
	"internal/engine": "internal/abi internal/frame internal/hist internal/prefetch internal/wire internal/secure " +
		"internal/seqnum internal/mono flowctl sched regmem remap",
	"internal/engine/peering": "internal/engine/op internal/engine/path internal/engine/build internal/engine/count " +
		"internal/engine/queue internal/abi internal/frame internal/hist internal/mono internal/secure internal/wire " +
		"flowctl sched",
	"internal/engine/path": "internal/engine/count internal/frame internal/hist internal/mono internal/wire flowctl " +
		"sched",
	"internal/engine/op": "internal/engine/build internal/engine/count internal/engine/queue internal/abi " +
		"internal/frame internal/mono internal/seqnum internal/wire regmem remap sched",
	"internal/engine/op/copies": "",
	"internal/engine/op/eager":  "internal/engine/op/copies internal/engine/queue internal/seqnum internal/wire",
	"internal/engine/op/fair":   "",
	"internal/engine/op/message": "internal/engine/op/pieces internal/engine/queue internal/abi internal/mono " +
		"internal/seqnum regmem",
	"internal/engine/op/park":   "internal/mono regmem",
	"internal/engine/op/pieces": "regmem",
	"internal/engine/op/span":   "",
	"internal/engine/build":     "internal/mono internal/seqnum internal/wire remap",
	"internal/engine/count":     "internal/hist regmem",
	"internal/engine/queue":     "",

	"internal/identity":     "internal/secure",
	"internal/secure":       "internal/aesgcm",
	"internal/aesgcm":       "",
	"internal/abi":          "",
	"internal/abi/generate": "internal/abi",
	"internal/frame":        "",
	"internal/wire":         "internal/abi internal/frame",
	"internal/ipc":          "internal/abi",
	"internal/trace":        "internal/wire internal/mono",
	"internal/idle":         "internal/mono",
	"internal/hist":         "",
	"internal/mono":         "",
	"internal/prefetch":     "",
	"internal/ethtool":      "",
	"internal/seqnum":       "",
	"internal/layering":     "",
	"flowctl":               "internal/seqnum internal/mono",
	"sched":                 "",
	"regmem":                "internal/abi",
	"remap":                 "regmem",
	"linkdrv":               "internal/frame",
	"linkdrv/linktest":      "linkdrv",

	"internal/buildinfo": "",
	"internal/clidoc":    "",
}

// pure lists the packages that must not touch the operating system. Of remap, files for linux may: they map memory, and
// hold nothing that thinks.
var pure = []string{"flowctl", "sched", "remap", "internal/engine", "internal/secure", "internal/wire", "internal/sim",
	"internal/engine/op", "internal/engine/path", "internal/engine/peering", "internal/engine/build",
	"internal/engine/count", "internal/engine/queue", "internal/engine/op/copies", "internal/engine/op/fair",
	"internal/engine/op/eager", "internal/engine/op/message", "internal/engine/op/park",
	"internal/engine/op/pieces", "internal/engine/op/span",
	"internal/seqnum", "internal/idle", "internal/hist", "internal/frame", "internal/prefetch", "internal/trace",
	"internal/mono", "internal/abi", "internal/fault"}

func TestImportsPointDownward(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "out" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		seen++
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		rule, may, ok := find(dir)
		if !ok {
			t.Errorf("%s: package %s has no layer; add it to this test and to docs/ARCHITECTURE.md", path, dir)
			return nil
		}
		for _, spec := range file.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			inside, ours := strings.CutPrefix(name, "multiedge/")
			if ours && inside != dir && !covered(inside, may) && !strings.HasPrefix(inside, dir+"/") {
				t.Errorf("%s imports %s; %s may import: %s", path, name, rule, may)
			}
			if strings.HasPrefix(name, "golang.org/x/sys") && contains(pure, rule) && !mapsMemory(path) {
				t.Errorf("%s imports %s; %s is pure", path, name, rule)
			}
			if name == "unsafe" && !strings.HasSuffix(path, "_unsafe.go") {
				t.Errorf("%s imports unsafe; that belongs in a file named *_unsafe.go", path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 50 {
		t.Fatalf("only %d files looked at; the test does not see the project", seen)
	}
}

// mapsMemory reports whether a file of remap is one of those that may use system calls.
func mapsMemory(path string) bool {
	name := filepath.Base(path)
	return filepath.Base(filepath.Dir(path)) == "remap" && (strings.HasSuffix(name, "_linux.go") ||
		name == "map_unsafe.go")
}

// find returns the rule of the longest name that covers dir.
func find(dir string) (rule, may string, ok bool) {
	for name, m := range allowed {
		if (dir == name || strings.HasPrefix(dir, name+"/")) && len(name) > len(rule) {
			rule, may, ok = name, m, true
		}
	}
	return
}

func covered(name, may string) bool {
	for _, m := range strings.Fields(may) {
		if name == m || strings.HasPrefix(name, m+"/") {
			return true
		}
	}
	return false
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}
