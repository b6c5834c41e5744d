package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// Load reads a configuration file. The result is not yet normalized: flags may still be laid over it.
func Load(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading the configuration: %w", err)
	}
	return Parse(text, path)
}

// unitTime is a time with its unit, such as "15s": a number alone would be taken for nanoseconds.
type unitTime struct{ time.Duration }

// UnmarshalText reads it, or says where it is wrong: package toml says where strings are wrong, but not numbers.
func (t *unitTime) UnmarshalText(text []byte) (err error) {
	if _, number := strconv.ParseFloat(string(text), 64); number == nil {
		return unstable.NewParserError(text, "cannot decode a number")
	}
	t.Duration, err = time.ParseDuration(string(text))
	return err
}

// Parse reads a configuration text. Keys it does not know are refused, each with its line and the nearest key that
// exists, because a misspelt limit that is silently ignored is worse than a daemon that does not start. file appears in
// errors only.
func Parse(text []byte, file string) (Config, error) {
	var d struct { // its times have units
		Config
		Spin        unitTime `toml:"spin"`
		DialTimeout unitTime `toml:"dial_timeout"`
		DeadTime    unitTime `toml:"dead_time"`
		KeepAlive   unitTime `toml:"keep_alive"`
		HelloTime   unitTime `toml:"hello_time"`
	}
	err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&d)
	if unknown, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		known := configKeys(reflect.TypeFor[Config](), "")
		var errs []error
		for i := range unknown.Errors {
			errs = append(errs, unknownKey(file, &unknown.Errors[i], known))
		}
		return Config{}, errors.Join(errs...)
	}
	if err == nil {
		err = singleTable(string(text), file)
	} else {
		err = tomlError(string(text), file, err)
	}
	if err != nil {
		return Config{}, err
	}
	c := d.Config
	c.Spin, c.DialTimeout, c.DeadTime = d.Spin.Duration, d.DialTimeout.Duration, d.DeadTime.Duration
	c.KeepAlive, c.HelloTime = d.KeepAlive.Duration, d.HelloTime.Duration
	return c, nil
}

// place says where in a file an error is.
func place(file string, err *toml.DecodeError) string {
	line, _ := err.Position()
	return fmt.Sprintf("%s:%d", file, line)
}

// tomlError says what is wrong with a text. Where it is a value, it says what the key takes: the package toml speaks of
// Go's types.
func tomlError(text, file string, err error) error {
	e, ok := errors.AsType[*toml.DecodeError](err)
	if !ok {
		return fmt.Errorf("%s: %w", file, err)
	}
	where, key, said := place(file, e), strings.Join(e.Key(), "."), strings.TrimPrefix(e.Error(), "toml: ")
	said, _, _ = strings.Cut(said, " cannot be stored") // what follows is a type of Go's
	if key == "" {                                      // the value is no TOML
		line, _ := e.Position()
		key = keyAt(strings.Split(text, "\n")[:line])
	}
	switch want := wanted(key); {
	case key == "":
		return fmt.Errorf("%s: %s", where, said)
	case want == "" || strings.Contains(said, "already"):
		return fmt.Errorf("%s: %s: %s", where, key, said)
	case strings.HasPrefix(said, "cannot decode"):
		return fmt.Errorf("%s: %s: want %s", where, key, want)
	default:
		return fmt.Errorf("%s: %s: %s; want %s", where, key, said, want)
	}
}

// singleTable refuses [link] for [[link]], which the package toml takes for one link.
func singleTable(text, file string) error {
	for i, line := range strings.Split(text, "\n") {
		name := tableOf(line)
		if t := typeOf(name); t != nil && t.Kind() == reflect.Slice && !strings.Contains(line, "[[") {
			return fmt.Errorf("%s:%d: %s: want %s", file, i+1, name, wanted(name))
		}
	}
	return nil
}

// tableOf returns the table that a line begins; empty: none.
func tableOf(line string) string {
	name, ok := strings.CutPrefix(strings.TrimSpace(line), "[")
	if !ok {
		return ""
	}
	name, _, _ = strings.Cut(strings.TrimPrefix(name, "["), "]")
	return strings.TrimSpace(name)
}

// keyAt returns the key to which the last of some lines gives a value; empty: none.
func keyAt(lines []string) string {
	table := ""
	for _, line := range lines {
		if name := tableOf(line); name != "" {
			table = name + "."
		}
	}
	key, _, ok := strings.Cut(lines[len(lines)-1], "=")
	if !ok {
		return ""
	}
	return table + strings.TrimSpace(key)
}

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

func unknownKey(file string, e *toml.DecodeError, known []string) error {
	key := e.Key()
	where, name := place(file, e), strings.Join(key, ".")
	if there := elsewhere(key[len(key)-1], known); there != "" {
		return fmt.Errorf("%s: unknown key %q; %s", where, name, there)
	}
	if near := nearest(name, known); near != "" {
		return fmt.Errorf("%s: unknown key %q; did you mean %q?", where, name, near)
	}
	return fmt.Errorf("%s: unknown key %q; keys are %s", where, name, strings.Join(known, ", "))
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
