package abi

import (
	"strings"
	"testing"
)

// unique reports a number or word that stands twice, or an empty word.
func unique[N comparable](t *testing.T, what string, seen map[any]bool, n N, word string) {
	t.Helper()
	if word == "" || seen[n] || seen[word] {
		t.Errorf("%s %v %q stands twice, or has no word", what, n, word)
	}
	seen[n], seen[word] = true, true
}

func TestNumbersAndWordsAreUnique(t *testing.T) {
	seen := map[any]bool{}
	for i := range Statuses {
		unique(t, "status", seen, Statuses[i].Code, Statuses[i].Word)
		if i > 0 && Statuses[i].Code < Statuses[i-1].Code {
			t.Errorf("status %d stands behind %d", Statuses[i].Code, Statuses[i-1].Code)
		}
	}
	seen = map[any]bool{}
	for i := range Kinds {
		unique(t, "kind", seen, Kinds[i].Kind, Kinds[i].Word)
	}
	seen = map[any]bool{}
	for _, o := range Ops {
		unique(t, "operation", seen, o.Op, o.Word)
	}
	seen = map[any]bool{}
	for _, c := range Completions {
		unique(t, "completion", seen, c.Kind, c.Word)
	}
	seen = map[any]bool{}
	for i, f := range Atomics {
		unique(t, "function", seen, f.Func, f.Word)
		if int(f.Func) != i+1 {
			t.Errorf("function %v has number %d", f.Func, f.Func)
		}
	}
	seen = map[any]bool{}
	for _, l := range Limits {
		unique(t, "limit", seen, l.C, l.C)
	}
	for what, all := range map[string][]Bit{"flag": FlagBits[:], "feature": FeatureBits[:], "permission": PermBits[:]} {
		seen = map[any]bool{}
		for _, b := range all {
			unique(t, what, seen, b.Bits, b.Word)
			if b.Bits == 0 || b.Bits&(b.Bits-1) != 0 {
				t.Errorf("%s %s is %#x, not one bit", what, b.Word, b.Bits)
			}
		}
	}
}

// TestStatusesAreWhole: every entry has a text, and an error of its own or that of an entry that has one.
func TestStatusesAreWhole(t *testing.T) {
	names := map[string]bool{}
	for i := range Statuses {
		s := &Statuses[i]
		own := s.C != "" && s.Errno != "" && s.Help != ""
		if like := s.Like.Info(); s.Like != 0 {
			own = s.C+s.Errno+s.Also+s.Help == "" && like != nil && like.Like == 0 && like.C != ""
		}
		if s.Text == "" || !own {
			t.Errorf("status %v: %+v", s.Code, s)
		}
		if s.C != "" && names[s.C] {
			t.Errorf("EDGE_ERR_%s stands twice", s.C)
		}
		names[s.C] = true
		if s.Sent != "" && s.Code >= Code(FirstLocal) {
			t.Errorf("status %v is the daemon's, and sent in %s", s.Code, s.Sent)
		}
		if s.Code < 256 && Status(s.Code).String() != s.Text || s.Code.String() != s.Word {
			t.Errorf("status %d is called %q and %q", s.Code, s.Code, Status(s.Code))
		}
	}
	if s := Status(77); s.String() != "status 77" || s.Code().String() != "status-77" || s.Code().Error() != 77 {
		t.Errorf("a status of another release: %v, %v", s, s.Code())
	}
	if StatusOwner.Code().Error() != Code(StatusKey) {
		t.Error("programs tell a key of another connection from an unknown one")
	}
}

// TestBitsAreWhole: the sets have what their tables have, and nothing else.
func TestBitsAreWhole(t *testing.T) {
	for want, all := range map[uint64][]Bit{uint64(FlagsAll): FlagBits[:], uint64(AllFeatures): FeatureBits[:],
		uint64(PermAll): PermBits[:]} {
		var got uint64
		for _, b := range all {
			got |= b.Bits
		}
		if got != want {
			t.Errorf("the table has bits %#x, the set %#x", got, want)
		}
	}
}

func TestPermString(t *testing.T) {
	for p, want := range map[Perm]string{0: "none", RemoteRead: "read", RemoteWrite | RemoteAtomic: "write+atomic",
		8: "invalid(0x8)"} {
		if p.String() != want {
			t.Errorf("permissions %d are %q, want %q", uint8(p), p, want)
		}
	}
}

// TestFeaturesOfOps: an operation of a feature is none where the feature is not in force.
func TestFeaturesOfOps(t *testing.T) {
	for _, o := range Ops {
		if o.Op >= opNumbers || o.Op.Feature() != o.Feature || o.Op.String() != o.Word {
			t.Errorf("operation %d: %v, feature %#x", o.Op, o.Op, o.Op.Feature())
		}
	}
	for f, ops := range map[Features][]Op{ // A2.4
		0:              {OpWrite, OpRead, OpCredit},
		FeatureAtomics: {4}, FeatureGather: {8}, FeatureMessages: {5, 6}, FeatureRedirect: {9, 10},
		FeatureEager: {11, 12, 13, 14},
	} {
		for _, o := range ops {
			if o.Feature() != f {
				t.Errorf("%v belongs to feature %#x, want %#x", o, o.Feature(), f)
			}
		}
	}
	if o := Op(200); o.Feature() != 0 || !strings.Contains(o.String(), "200") {
		t.Errorf("an operation of another release: %v", o)
	}
}
