package config

import (
	"crypto/sha256"
	"os"
	"strings"

	"multiedge/internal/engine"
)

// PlainIdentity returns the node's lasting identity where no key proves it. It is the configured one, else a digest of
// the machine and the node's name, so that a daemon keeps its identity over restarts and two daemons of different names
// on one machine have different ones.
func PlainIdentity(cfg *Config) engine.NodeID {
	if cfg.NodeID != "" {
		id, _ := ParseNodeID(cfg.NodeID) // Normalize checked it
		return id
	}
	sum := sha256.Sum256([]byte("multiedge node\x00" + machineID() + "\x00" + cfg.Name))
	var id engine.NodeID
	copy(id[:], sum[:])
	id[0] |= 1 // never zero
	return id
}

// machineID is systemd's, or in hosts without one (containers) the kernel's boot identity.
func machineID() string {
	for _, path := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/random/boot_id"} {
		if b, err := os.ReadFile(path); err == nil {
			if s := strings.TrimSpace(string(b)); s != "" && s != "uninitialized" {
				return s
			}
		}
	}
	return ""
}
