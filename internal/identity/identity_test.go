package identity

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"multiedge/internal/secure"
)

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
	must(t, os.Chmod(path, mode))
	return path
}

// only requires that a directory holds the named files and nothing else: no temporary file is left.
func only(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("%s holds %v, want %v", dir, got, names)
	}
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	st, err := os.Stat(path)
	must(t, err)
	return st.Mode().Perm()
}

func TestKeyIsMadeOnce(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "a", "state", "key")
	k, made, err := LoadKey(path)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	if mode(t, path) != 0o600 || mode(t, filepath.Dir(path)) != 0o700 {
		t.Errorf("modes %o and %o", mode(t, path), mode(t, filepath.Dir(path)))
	}
	only(t, filepath.Dir(path), "key")
	again, made, err := LoadKey(path)
	if err != nil || made || again != k {
		t.Errorf("second start: made %v, the same key %v, %v", made, again == k, err)
	}
	if err := CreateKey(path, secure.NewPrivateKey()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a key was overwritten: %v", err)
	}
	if again, err := ReadKey(path); err != nil || again != k {
		t.Errorf("the key changed: %v", err)
	}
	only(t, filepath.Dir(path), "key")
}

// Of many first starts at once one makes the key and all have it.
func TestFirstStartsRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "key")
	const starts = 16
	var keys [starts]secure.PrivateKey
	var made [starts]bool
	var errs [starts]error
	var wg sync.WaitGroup
	for i := range starts {
		wg.Go(func() { keys[i], made[i], errs[i] = LoadKey(path) })
	}
	wg.Wait()
	makers := 0
	for i := range starts {
		if errs[i] != nil || keys[i] != keys[0] {
			t.Errorf("start %d: the same key: %v, %v", i, keys[i] == keys[0], errs[i])
		}
		if made[i] {
			makers++
		}
	}
	if makers != 1 {
		t.Errorf("%d of them made it", makers)
	}
	only(t, filepath.Dir(path), "key")
}

func TestBadKeyFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	good := secure.NewPrivateKey().Text() + "\n"
	fifo := filepath.Join(dir, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	link := filepath.Join(dir, "nowhere")
	must(t, os.Symlink(filepath.Join(dir, "absent"), link))
	for _, tc := range []struct{ path, want string }{
		{write(t, filepath.Join(dir, "group"), good, 0o640), "chmod 600"},
		{write(t, filepath.Join(dir, "world"), good, 0o604), "chmod 600"},
		{write(t, filepath.Join(dir, "writable"), good, 0o620), "chmod 600"},
		{write(t, filepath.Join(dir, "empty"), "", 0o600), "malformed"},
		{write(t, filepath.Join(dir, "short"), good[:20], 0o600), "malformed"},
		{write(t, filepath.Join(dir, "two"), good+good, 0o600), "malformed"},
		{write(t, filepath.Join(dir, "huge"), strings.Repeat("x", 1<<20), 0o600), "malformed"},
		{dir, "not an ordinary file"},
		{fifo, "not an ordinary file"},
		{link, "leads nowhere"},
		{filepath.Join(dir, "empty", "key"), "not a directory"},
	} {
		var before []byte
		if tc.path != fifo { // reading one waits for a writer
			before, _ = os.ReadFile(tc.path)
		}
		_, made, err := LoadKey(tc.path)
		if err == nil || made || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.path) {
			t.Errorf("%s: made %v, %v; want %q", filepath.Base(tc.path), made, err, tc.want)
		}
		if tc.path == fifo {
			continue
		}
		if after, _ := os.ReadFile(tc.path); string(after) != string(before) {
			t.Errorf("%s was changed", tc.path)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "absent")); err == nil {
		t.Error("a key was written through a symbolic link")
	}
}

func TestKeyThroughSymlink(t *testing.T) {
	dir := t.TempDir()
	k := secure.NewPrivateKey()
	write(t, filepath.Join(dir, "real"), k.Text(), 0o600)
	link := filepath.Join(dir, "key")
	must(t, os.Symlink("real", link))
	if got, made, err := LoadKey(link); err != nil || made || got != k {
		t.Errorf("made %v, %v", made, err)
	}
}

// Root prepares a service's key: it belongs to the service.
func TestKeyBelongsToItsDirectory(t *testing.T) {
	dir, owner := t.TempDir(), 1234
	if os.Geteuid() != 0 {
		owner = os.Geteuid()
	}
	must(t, os.Chown(dir, owner, -1))
	path := filepath.Join(dir, "key")
	must(t, CreateKey(path, secure.NewPrivateKey()))
	st, err := os.Stat(path)
	if err != nil || st.Sys().(*syscall.Stat_t).Uid != uint32(owner) || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
}

func TestPaths(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", "/var/lib/edged:/var/lib/other")
	t.Setenv("CONFIGURATION_DIRECTORY", "/etc/edged")
	if k := KeyPath(); k != "/var/lib/edged/key" || PeersPath(k) != "/etc/edged/peers" {
		t.Error("under systemd:", k, PeersPath(k))
	}
	t.Setenv("STATE_DIRECTORY", "")
	t.Setenv("CONFIGURATION_DIRECTORY", "")
	if k := KeyPath(); os.Geteuid() == 0 && (k != "/var/lib/edged/key" || PeersPath("/x/key") != "/etc/edged/peers") {
		t.Error("root:", k, PeersPath("/x/key"))
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
