package daemon

import (
	"path/filepath"
	"testing"
)

// inBothForms runs a test on nodes that encrypt and on nodes that do not.
func inBothForms(t *testing.T, test func(t *testing.T, security string)) {
	for _, security := range []string{Encrypted, Plaintext} {
		t.Run(security, func(t *testing.T) { test(t, security) })
	}
}

// plaintext returns cfg in plaintext.
func plaintext(cfg Config) Config {
	cfg.Security = Plaintext
	return cfg
}

// keyed returns cfg encrypted, with key and peers in files of the test that do not exist yet.
func keyed(t *testing.T, cfg Config) Config {
	t.Helper()
	dir := t.TempDir()
	cfg.Security, cfg.KeyFile, cfg.PeersFile = Encrypted, filepath.Join(dir, "state", "key"), filepath.Join(dir, "peers")
	return cfg
}
