package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// Load reads a configuration file. The result is not yet normalized: flags may still be laid over it.
func Load(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading the configuration: %w", err)
	}
	return Parse(text, path)
}

// Parse reads a configuration text. Keys it does not know are refused, each with its line and the nearest key that
// exists, because a misspelt limit that is silently ignored is worse than a daemon that does not start. file appears in
// errors only.
func Parse(text []byte, file string) (Config, error) {
	var cfg Config
	meta, err := toml.Decode(string(text), &cfg)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %s", file, tomlError(err))
	}
	var errs []error
	known := configKeys(reflect.TypeFor[Config](), "")
	for _, key := range meta.Undecoded() {
		parent := key[:len(key)-1]
		if slices.ContainsFunc(meta.Undecoded(), func(k toml.Key) bool { return slices.Equal(k, parent) }) {
			continue // the table itself is unknown and reported
		}
		errs = append(errs, unknownKey(text, file, key, known))
	}
	for _, key := range bareDurations(meta) {
		errs = append(errs, fmt.Errorf("%s: %s is a time and needs a unit, such as \"15s\" or \"50us\"",
			place(text, file, key), key))
	}
	if len(errs) > 0 {
		return Config{}, errors.Join(errs...)
	}
	return cfg, nil
}

// bareDurations lists the times that are written as numbers, which would be taken for nanoseconds.
func bareDurations(meta toml.MetaData) (keys []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		if name := f.Tag.Get("toml"); f.Type == reflect.TypeFor[time.Duration]() && meta.Type(name) == "Integer" {
			keys = append(keys, name)
		}
	}
	return keys
}

// place says where in a file a key is.
func place(text []byte, file, key string) string {
	if n := lineOf(string(text), key); n > 0 {
		return fmt.Sprintf("%s:%d", file, n)
	}
	return file
}

func tomlError(err error) string {
	if pe, ok := errors.AsType[toml.ParseError](err); ok {
		return strings.TrimPrefix(pe.Error(), "toml: ")
	}
	return strings.TrimPrefix(err.Error(), "toml: ")
}

func unknownKey(text []byte, file string, key toml.Key, known []string) error {
	name := strings.Join(key, ".")
	where := place(text, file, key[len(key)-1])
	if near := nearest(name, known); near != "" {
		return fmt.Errorf("%s: unknown key %q; did you mean %q?", where, name, near)
	}
	return fmt.Errorf("%s: unknown key %q; keys are %s", where, name, strings.Join(known, ", "))
}

// lineOf finds the first line that assigns key or opens a table of that name; 0 if none is found.
func lineOf(text, key string) int {
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		rest, ok := strings.CutPrefix(strings.TrimLeft(line, "[ \t"), key)
		if ok && strings.IndexAny(strings.TrimLeft(rest, " \t"), "=].") == 0 {
			return i + 1
		}
	}
	return 0
}

// configKeys lists the dotted names of every key the type accepts, in the order of its fields.
func configKeys(t reflect.Type, prefix string) []string {
	var keys []string
	for _, f := range reflect.VisibleFields(t) {
		name := f.Tag.Get("toml")
		if name == "" { // or an embedded struct, whose fields follow
			continue
		}
		keys = append(keys, prefix+name)
		ft := f.Type
		if ft.Kind() == reflect.Slice {
			ft = ft.Elem()
		}
		if ft.Kind() == reflect.Struct {
			keys = append(keys, configKeys(ft, prefix+name+".")...)
		}
	}
	return keys
}

// nearest returns the candidate closest to name, or "" when none is close enough to be what was meant.
func nearest(name string, candidates []string) string {
	best, bestDist := "", len(name)/3+2
	for _, c := range candidates {
		if d := editDistance(name, c); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, substitutions and swaps of neighbours that lead from a to b.
func editDistance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, prev, cur := rows[0], rows[1], rows[2]
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		rows[0], rows[1], rows[2] = prev, cur, before
	}
	return rows[1][len(b)]
}
