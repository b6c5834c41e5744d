package named

import "testing"

// A peer has so many importers admitted and waiting, and leaves the others theirs.
func TestAdmissionsAreBounded(t *testing.T) {
	var a admissions
	var last *admission
	for range mostComing {
		if last = a.enter("crowd"); last == nil {
			t.Fatal("refused too early")
		}
	}
	if a.enter("crowd") != nil {
		t.Error("a peer's importers are not bounded")
	}
	lone := a.enter("lone")
	if lone == nil {
		t.Error("another peer's importer is refused")
	}
	a.leave(lone)
	if a.leave(last); a.enter("crowd") == nil || len(a.of) != 1 {
		t.Error("a place is not given back")
	}
}
