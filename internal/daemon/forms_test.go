package daemon

import (
	"path/filepath"
	"testing"

	"multiedge/internal/config"
)

// inBothForms runs a test on nodes that encrypt and on nodes that do not.
func inBothForms(t *testing.T, test func(t *testing.T, security string)) {
	for _, security := range []string{config.Encrypted, config.Plaintext} {
		t.Run(security, func(t *testing.T) { test(t, security) })
	}
}

// plaintext returns cfg in plaintext.
func plaintext(cfg config.Config) config.Config {
	cfg.Security = config.Plaintext
	return cfg
}

// keyed returns cfg encrypted, with key and peers in files of the test that do not exist yet.
func keyed(t *testing.T, cfg config.Config) config.Config {
	t.Helper()
	dir := t.TempDir()
	cfg.Security, cfg.KeyFile, cfg.PeersFile = config.Encrypted, filepath.Join(dir, "state", "key"),
		filepath.Join(dir, "peers")
	return cfg
}
