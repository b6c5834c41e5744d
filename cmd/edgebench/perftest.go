package main

import (
	"fmt"
	"slices"
	"strings"
)

// foreign is a flag of perftest (ib_write_bw, ib_write_lat, ib_read_bw) that means nothing here, or something else.
type foreign struct {
	short, long string
	value       bool
	refuse      string // what to give instead; empty: the flag is taken, and idle says why it changes nothing
	idle        string
	only        func(v string) bool // refused for these values alone; the flag is ours otherwise
}

// foreignFlags are all that differ, by the letters of perftest 6. Those that mean the same are our own: -s -a -n -b -D
// -h, and --report_gbits by its underscores.
var foreignFlags = []foreign{
	// These mean something else here, or would leave somebody believing that they were heard.
	{"q", "qp", true, "queue pairs are connections here: --conns N; operations in flight are -t N (--depth)", "", nil},
	{"m", "mtu", true, "the MTU of links is --lab-mtu; -m is a range of sizes, -m MIN:MAX", "",
		func(v string) bool { return !strings.Contains(v, ":") }},
	{"o", "outs", true, "reads in flight are -t N (--depth); -o names a file for results", "", number},
	{"l", "post_list", true, "operations posted at once are --batch N", "", nil},
	{"e", "events", false, "waiting for events instead of polling is --poll block", "", nil},
	{"c", "connection", true, "connections are reliable here (RC), there are no others", "",
		func(v string) bool { return v != "RC" }},
	{"O", "dualport", false, "all links of a daemon are used at once: name them in edged's configuration, or " +
		"--lab-links 2", "", nil},
	{"w", "limit_bw", true, "there is no limit to fail below: compare the result, --format json", "", nil},
	{"y", "limit_msgrate", true, "there is no limit to fail below: compare the result, --format json", "", nil},
	{"", "rate_limit", true, "rates are limited on links: --lab-rates", "", nil},
	{"C", "report-cycles", false, "times are microseconds, --format json has nanoseconds", "", nil},
	{"H", "report-histogram", false, "percentiles are in --format json, and drawn with -o out/", "", nil},
	{"U", "report-unsorted", false, "single results are not kept; percentiles are in --format json", "", nil},
	{"V", "version", false, "the version is --version", "", nil},
	{"", "use_cuda", true, "memory is the host's: there is no GPU memory", "", nil},
	{"", "out_json", false, "JSON is --format json, or -o FILE.json", "", nil},
	{"", "out_json_file", true, "results go to a file by -o FILE.json", "", nil},
	{"", "run_infinitely", false, "a test ends: -D SECONDS", "", nil},
	{"W", "report-counters", true, "counters are in --format json, and in edgectl stat", "", nil},

	// These choose what is not there to be chosen.
	{"d", "ib-dev", true, "", "the daemon's links are used, whatever they are", nil},
	{"i", "ib-port", true, "", "the daemon's links are used, whatever they are", nil},
	{"p", "port", true, "", "the peer is found by its name", nil},
	{"x", "gid-index", true, "", "nodes have names instead of GIDs", nil},
	{"c", "connection", true, "", "connections are reliable, there are no others", nil},
	{"F", "CPU-freq", false, "", "time is not counted in cycles", nil},
	{"I", "inline_size", true, "", "payloads are in shared memory: none is inline", nil},
	{"Q", "cq-mod", true, "", "completions are not moderated", nil},
	{"r", "rx-depth", true, "", "send posts as many buffers as it has messages under way", nil},
	{"R", "rdma_cm", false, "", "connections are always made by names", nil},
	{"z", "comm_rdma_cm", false, "", "connections are always made by names", nil},
	{"S", "sl", true, "", "there are no service levels", nil},
	{"T", "tos", true, "", "frames have no type of service", nil},
	{"u", "qp-timeout", true, "", "timeouts follow the round trip", nil},
	{"f", "margin", true, "", "there is no warm-up margin to choose", nil},
	{"N", "noPeak", false, "", "the peak costs nothing", nil},
	{"L", "hop_limit", true, "", "the kernel chooses it", nil},
	{"", "ipv6", false, "", "peers are named; of a lab, --lab-family 6", nil},
	{"", "use_hugepages", false, "", "memory is a sealed memfd", nil},
}

// number reports whether v is a whole number.
func number(v string) bool { return v != "" && strings.Trim(v, "0123456789") == "" }

// perftestCommands are those that have flags of perftest.
var perftestCommands = []string{"one-way", "two-way", "ping-pong", "read", "rate", "send", "atomic", "server",
	"compare", "links", "polling", "profile", "schedulers", "shards", "zero-copy"}

// ours are the short flags of these commands, and whether each has a value.
var ours = map[byte]bool{'s': true, 'a': false, 'm': true, 'n': true, 'D': true, 't': true, 'b': false, 'o': true,
	'h': false}

// fromPerftest returns a command line without the flags of perftest that change nothing here, with a note for each, or
// an error that names the right flag for one that means something else.
func fromPerftest(args []string) (kept, notes []string, err error) {
	if len(args) == 0 || !slices.Contains(perftestCommands, args[0]) {
		return args, nil, nil
	}
	kept = args[:1:1]
	for rest := args[1:]; len(rest) > 0; {
		word := rest[0]
		rest = rest[1:]
		switch {
		case word == "--":
			return append(append(kept, word), rest...), notes, nil
		case strings.HasPrefix(word, "--"):
			var keep, note string
			if keep, note, rest, err = longFlag(word, rest); err != nil {
				return nil, nil, err
			}
			kept, notes = addWord(kept, keep), addWord(notes, note)
		case len(word) > 1 && word[0] == '-':
			var keep, said []string
			if keep, said, rest, err = shortFlags(word[1:], rest); err != nil {
				return nil, nil, err
			}
			kept, notes = append(kept, keep...), append(notes, said...)
		default:
			kept = append(kept, word)
		}
	}
	return kept, notes, nil
}

func addWord(list []string, word string) []string {
	if word == "" {
		return list
	}
	return append(list, word)
}

// longFlag takes one flag in its long form, with its value if that is the next word.
func longFlag(word string, rest []string) (keep, note string, left []string, err error) {
	name, value, has := strings.Cut(word[2:], "=")
	if name == "report_gbits" {
		return "--report-gbits", "", rest, nil
	}
	switch name {
	case "tx-depth":
		return "--depth" + word[len("--tx-depth"):], "", rest, nil
	case "bidirectional":
		return "--both", "", rest, nil
	case "version":
		return word, "", rest, nil
	}
	for _, f := range foreignFlags {
		if f.long != name {
			continue
		}
		left = rest
		if f.value && !has && len(rest) > 0 {
			value, left = rest[0], rest[1:]
		}
		if f.refuse != "" && (f.only == nil || f.only(value)) {
			return "", "", nil, fmt.Errorf("--%s is perftest's: %s", name, f.refuse)
		}
		if f.refuse == "" {
			return "", fmt.Sprintf("--%s changes nothing: %s", name, f.idle), left, nil
		}
	}
	return word, "", rest, nil
}

// shortFlags takes one word of short flags, such as -F, -aF, -d mlx5_0 or -dmlx5_0.
func shortFlags(letters string, rest []string) (keep, notes, left []string, err error) {
	own := ""
	for i := 0; i < len(letters); i++ {
		letter := letters[i]
		after := strings.TrimPrefix(letters[i+1:], "=")
		value, next := after, rest
		if value == "" && len(rest) > 0 {
			value, next = rest[0], rest[1:]
		}
		f, found := find(string(letter), value)
		if !found {
			own += string(letter)
			if ours[letter] { // the rest of the word is its value
				if after != "" {
					own += letters[i+1:]
				} else if len(rest) > 0 {
					return append(addWord(keep, "-"+own), value), notes, next, nil
				}
				break
			}
			continue
		}
		if f.refuse != "" {
			return nil, nil, nil, fmt.Errorf("-%c is perftest's --%s: %s", letter, f.long, f.refuse)
		}
		notes = append(notes, fmt.Sprintf("-%c changes nothing: %s", letter, f.idle))
		if f.value {
			rest = next
			break
		}
	}
	if own != "" {
		keep = append(keep, "-"+own)
	}
	return keep, notes, rest, nil
}

// find returns what is known of a letter of perftest with that value; not found: it is ours.
func find(letter, value string) (foreign, bool) {
	for _, f := range foreignFlags {
		if f.short == letter && (f.refuse == "" || f.only == nil || f.only(value)) {
			return f, true
		}
	}
	return foreign{}, false
}
