package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
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
		return Config{}, tomlError(text, file, err)
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

// tomlError says what is wrong with a text. Where it is a value, it says what the key takes: the package toml speaks of
// Go's types.
func tomlError(text []byte, file string, err error) error {
	parts := tomlText.FindStringSubmatch(err.Error())
	if parts == nil {
		return fmt.Errorf("%s: %s", file, strings.TrimPrefix(err.Error(), "toml: "))
	}
	where, key, said := file+":"+parts[1], parts[2], parts[3]
	n, _ := strconv.Atoi(parts[1])
	lines, want := strings.Split(string(text), "\n"), wanted(key)
	switch {
	case n < 1 || n > len(lines) || !assigns(lines[n-1], lastPart(key)): // the last key may be of a line before
		return fmt.Errorf("%s: %s", where, said)
	case want == "", strings.Contains(said, "already been defined"):
		return fmt.Errorf("%s: %s: %s", where, key, said)
	case strings.HasPrefix(said, "incompatible types"), strings.HasPrefix(said, "type mismatch"):
		return fmt.Errorf("%s: %s: want %s", where, key, want)
	}
	return fmt.Errorf("%s: %s: %s; want %s", where, key, said, want)
}

// tomlText are the line, the last key and the rest of what the package toml says.
var tomlText = regexp.MustCompile(`(?s)^toml: line (\d+)(?: \(last key "([^"]*)"\))?: (.*)$`)

func lastPart(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// wanted says how a value of the key is written; empty: the key is unknown, or its type says so itself.
func wanted(key string) string {
	t := typeOf(key)
	switch {
	case t == nil || t == reflect.TypeFor[Size]():
		return ""
	case t == reflect.TypeFor[time.Duration]():
		return `a time with its unit, in quotes, such as "15s" or "50us"`
	}
	switch t.Kind() {
	case reflect.Slice:
		return fmt.Sprintf("a line [[%s]] for each, with its keys below", key)
	case reflect.Struct:
		return fmt.Sprintf("a line [%s] with its keys below", key)
	case reflect.String:
		return "text in quotes"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Uint16:
		return "a whole number up to 65535, without quotes"
	}
	return "a whole number, without quotes"
}

// typeOf returns the type of a key's field; nil if there is none.
func typeOf(key string) reflect.Type {
	t := reflect.TypeFor[Config]()
	for part := range strings.SplitSeq(key, ".") {
		if t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return nil
		}
		fields := reflect.VisibleFields(t)
		i := slices.IndexFunc(fields, func(f reflect.StructField) bool { return f.Tag.Get("toml") == part })
		if i < 0 {
			return nil
		}
		t = fields[i].Type
	}
	return t
}

// elsewhere says where a key belongs that stands in a wrong table; empty: nowhere.
func elsewhere(name string, known []string) string {
	for _, k := range known {
		t := typeOf(k)
		if lastPart(k) != name || t.Kind() == reflect.Slice || t.Kind() == reflect.Struct {
			continue
		}
		table, _, nested := strings.Cut(k, ".")
		switch {
		case !nested:
			return fmt.Sprintf("%q must stand above the first line in brackets", k)
		case typeOf(table).Kind() == reflect.Slice:
			return fmt.Sprintf("%q belongs below a line [[%s]]", name, table)
		}
		return fmt.Sprintf("%q belongs below a line [%s]", name, table)
	}
	return ""
}

func unknownKey(text []byte, file string, key toml.Key, known []string) error {
	name := strings.Join(key, ".")
	where := place(text, file, key[len(key)-1])
	if there := elsewhere(key[len(key)-1], known); there != "" {
		return fmt.Errorf("%s: unknown key %q; %s", where, name, there)
	}
	if near := nearest(name, known); near != "" {
		return fmt.Errorf("%s: unknown key %q; did you mean %q?", where, name, near)
	}
	return fmt.Errorf("%s: unknown key %q; keys are %s", where, name, strings.Join(known, ", "))
}

// lineOf finds the first line that assigns key or opens a table of that name; 0 if none is found.
func lineOf(text, key string) int {
	for i, line := range strings.Split(text, "\n") {
		if assigns(line, key) {
			return i + 1
		}
	}
	return 0
}

// assigns reports whether a line gives key a value, or opens a table of that name.
func assigns(line, key string) bool {
	rest, ok := strings.CutPrefix(strings.TrimLeft(line, "[ \t"), key)
	return ok && strings.IndexAny(strings.TrimLeft(rest, " \t"), "=].") == 0
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
