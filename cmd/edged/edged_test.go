package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"multiedge/internal/config"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

func parse(t *testing.T, args ...string) *flags {
	t.Helper()
	var f flags
	p, err := kong.New(&f, kong.Vars{"version": "test"})
	must(t, err)
	if _, err := p.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &f
}

// Flags are laid over the file; what they do not name stays.
func TestFlagsOverFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edged.toml")
	text := "name = \"file\"\nscheduler = \"wd\"\nspin = \"10us\"\n[[link]]\nname = \"eth1\"\nweight = " +
		"4\n[[link]]\nname = \"eth2\"\n[metrics]\nlisten = \"127.0.0.1:9469\"\n"
	must(t, os.WriteFile(path, []byte(text), 0o600))
	cfg, err := parse(t, "-c", path).config()
	if err != nil || cfg.Name != "file" || len(cfg.Links) != 2 || cfg.Spin != 10*time.Microsecond {
		t.Fatalf("%+v %v", cfg, err)
	}
	cfg, err = parse(t, "-c", path, "--name", "flag", "--link", "eth3", "--link", "eth1", "--metrics-listen", "",
		"--metrics-web-config", "/w", "--ethertype", "0x88b6", "--wait-links", "--plaintext", "--key-file", "/k",
		"--peers-file", "/p").config()
	must(t, err)
	if cfg.Name != "flag" || cfg.Scheduler != "wd" || cfg.Metrics != (config.Metrics{WebConfig: "/w"}) ||
		cfg.EtherType != 0x88b6 || !cfg.WaitLinks || cfg.Security != config.Plaintext || cfg.KeyFile != "/k" ||
		cfg.PeersFile != "/p" {
		t.Errorf("%+v", cfg)
	}
	if len(cfg.Links) != 2 || cfg.Links[0].Name != "eth3" || cfg.Links[1].Name != "eth1" || cfg.Links[1].Weight != 4 {
		t.Errorf("links %+v", cfg.Links)
	}
	if _, err := parse(t, "--ethertype", "x").config(); err == nil || !strings.Contains(err.Error(), "0x88b5") {
		t.Errorf("%v", err)
	}
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.toml")
	must(t, os.WriteFile(bad, []byte("lnik = 1\n"), 0o600))
	for _, tc := range []struct {
		args []string
		want int
	}{
		{[]string{"--check", "--link", "eth1", "--key-file", filepath.Join(dir, "key"), "--peers-file",
			filepath.Join(dir, "peers")}, 0},
		{[]string{"-c", bad, "--check"}, 2},
		{[]string{"--check", "--link", "eth1", "--plaintext", "--group", "no-such-group"}, 2},
		{[]string{"-c", filepath.Join(dir, "none.toml")}, 2},
		{[]string{"--link", "eth1", "--metrics-listen", "127.0.0.1:0", "--metrics-web-config", bad}, 2},
		{[]string{"--check", "--link", "eth1", "--metrics-listen", "127.0.0.1:0", "--metrics-web-config", bad}, 2},
		{[]string{"--poll", "sometimes", "--link", "eth1"}, 2},
		{[]string{"--check", "--link", "eth1", "--plaintext", "--lanes", "8"}, 2},
		{[]string{"--check", "--link", "eth1", "--plaintext", "--congestion", "wan"}, 2},
		{[]string{"--no-such-flag"}, 2},
		{[]string{"--link", "no-such-if", "--socket", filepath.Join(dir, "s.sock"), "--key-file",
			filepath.Join(dir, "key")}, 1},
		{[]string{"--check", "--link", "eth1", "--key-file", filepath.Join(dir, "key"), "--peers-file", bad}, 2},
		{[]string{"--check", "--link", "eth1", "--key-file", bad}, 2},
		{[]string{"--check", "--link", "eth1", "--key-file", bad, "--plaintext"}, 0},
	} {
		if got := run(tc.args); got != tc.want {
			t.Errorf("edged %s: exit %d, want %d", strings.Join(tc.args, " "), got, tc.want)
		}
	}
}

// The example that is installed must be accepted as it is.
func TestExampleConfiguration(t *testing.T) {
	cfg, err := parse(t, "-c", "../../deploy/edged.toml").config()
	must(t, err)
	must(t, cfg.Normalize())
	text, err := os.ReadFile("../../deploy/edged.toml")
	must(t, err)
	// Every key that is commented out must be one that exists.
	uncommented := strings.NewReplacer("# [[", "[[", "\n# ",
		"\n").Replace(string(text[strings.Index(string(text), "# name"):]))
	path := filepath.Join(t.TempDir(), "all.toml")
	must(t, os.WriteFile(path, []byte(uncommented), 0o600))
	cfg, err = parse(t, "-c", path).config()
	must(t, err)
	must(t, cfg.Normalize())
}

// What the packages are made of must be there; the programs are, once they are built.
func TestPackage(t *testing.T) {
	text, err := os.ReadFile("../../deploy/nfpm.yaml")
	must(t, err)
	var pack struct {
		Contents []struct{ Src, Dst, Type string }
		Scripts  map[string]string
	}
	must(t, yaml.Unmarshal(text, &pack))
	var sources []string
	for _, c := range pack.Contents {
		if program, ok := strings.CutPrefix(c.Src, "bin/"); ok {
			c.Src = "cmd/" + program
		}
		if sources = append(sources, c.Src); strings.HasPrefix(c.Dst, "/etc/") && c.Type != "config|noreplace" {
			t.Errorf("an upgrade overwrites %s", c.Dst)
		}
	}
	for _, script := range pack.Scripts {
		sources = append(sources, script)
	}
	for _, src := range sources {
		if strings.HasPrefix(src, "out/") { // made by make packages
			continue
		}
		if found, err := filepath.Glob("../../" + src); err != nil || len(found) == 0 {
			t.Errorf("no %s: %v", src, err)
		}
	}
	for _, page := range []string{"edged.8", "edged.toml.5", "edgectl.1", "edgebench.1"} {
		if !slices.Contains(sources, "out/man/"+page) {
			t.Errorf("the package has no %s", page)
		}
	}
	if len(sources) < 10 || len(pack.Scripts) == 0 {
		t.Errorf("only %q found: the test does not see it", sources)
	}
}

// The manual page of the configuration has every key that edged takes.
func TestConfigurationManual(t *testing.T) {
	page, err := exec.Command("awk", "-f", "../../deploy/edged.toml.awk", "../../deploy/edged.toml").CombinedOutput()
	must(t, err)
	seen := 0
	var look func(of reflect.Type)
	look = func(of reflect.Type) {
		for of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for f := range of.Fields() {
			key := f.Tag.Get("toml")
			if look(f.Type); key == "" || f.Type.Kind() == reflect.Struct || f.Type.Kind() == reflect.Slice &&
				f.Type.Elem().Kind() != reflect.String {
				continue // tables are headings
			}
			if seen++; !strings.Contains(string(page), "\n.B "+key+" = ") && key != "node_id" { // said under security
				t.Errorf("no %s in\n%s", key, page)
			}
		}
	}
	look(reflect.TypeFor[config.Config]())
	for _, want := range []string{".TH EDGED.TOML 5", ".SH FILES", ".SH EXAMPLES", ".SS [[link]]", ".SS [limits]"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %s", want)
		}
	}
	if seen < 50 {
		t.Errorf("only %d keys are seen", seen)
	}
}

// The unit gives the daemon packet sockets and nothing else: who loosens it shall do so on purpose.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile("../../deploy/edged.service")
	must(t, err)
	set := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			set[key] = append(set[key], value)
		}
	}
	for key, want := range map[string]string{
		"User": "edged", "AmbientCapabilities": "CAP_NET_RAW", "CapabilityBoundingSet": "CAP_NET_RAW",
		"NoNewPrivileges": "yes", "ProtectSystem": "strict",
		"RestrictAddressFamilies": "AF_UNIX AF_PACKET AF_NETLINK AF_INET AF_INET6", "RestrictNamespaces": "yes",
		"MemoryDenyWriteExecute":  "yes",
		"SystemCallArchitectures": "native", "StateDirectory": "edged", "StateDirectoryMode": "0700",
		"SystemCallFilter": "@system-service|~@privileged @resources @keyring @setuid userfaultfd|@chown|sched_setattr",
	} {
		if got := strings.Join(set[key], "|"); got != want {
			t.Errorf("%s=%s, want %s", key, got, want)
		}
	}
}

// A check says which links are not there, and the unit's reload checks the file that the daemon was started with,
// first.
func TestCheckSaysWhatIsMissing(t *testing.T) {
	cfg := config.Config{Links: []config.Link{{Name: "lo"}, {Name: "no-such-if"}}}
	if list := missingLinks(&cfg); len(list) != 1 || !strings.Contains(list[0], "no-such-if") ||
		!strings.Contains(list[0], "lo") {
		t.Errorf("%q", list)
	}
	text, err := os.ReadFile("../../deploy/edged.service")
	must(t, err)
	var start string
	var reload []string
	for line := range strings.Lines(string(text)) {
		if s, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
			start = s
		}
		if s, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecReload="); ok {
			reload = append(reload, s)
		}
	}
	if len(reload) != 2 || start == "" || reload[0] != start+" --check" || !strings.Contains(reload[1], "-HUP") {
		t.Errorf("%q is reloaded by %q", start, reload)
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
